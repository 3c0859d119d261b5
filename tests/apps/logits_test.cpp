// `conclave logits` as a shell sees it.
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "apps/program.h"
#include "engine/random_model.h"

namespace conclave {
namespace {

class LogitsCommandTest : public ProgramTest {
 protected:
  LogitsCommandTest() : ProgramTest("logits"), model_("qwen3moe", DType::f32) {}

  Outcome on_model(const std::string& arguments) const {
    return run("-m '" + model_.path().string() + "' -o '" + path("out.npy") + "' " + arguments);
  }
  bool is_written() const { return std::filesystem::exists(path("out.npy")); }
  // An error that leaves no file behind, whole or not.
  void refuses(const std::string& arguments, const std::string& part) const {
    expect_error(on_model(arguments), part);
    leaves_nothing();
  }
  void leaves_nothing() const {
    EXPECT_FALSE(is_written());
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      EXPECT_TRUE(entry.path().filename() == "stdout" || entry.path().filename() == "stderr") << entry.path();
    }
  }

  testing::RandomModel model_;
};

TEST_F(LogitsCommandTest, WritesANumPyArrayOfWhatTheSessionGives) {
  const Outcome r = on_model("--tokens 1,2,3,19 -t 2");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.out + r.err, "");
  const std::string file = read_all(path("out.npy"));
  const std::string start("\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (4, 20), }", 68);
  EXPECT_EQ(file.substr(0, start.size()), start);
  ASSERT_EQ(file.size(), 128U + 4 * 20 * sizeof(float));
  EXPECT_EQ(file[127], '\n');

  Session session(model_.open(), {.context = 10, .kv_type = KvType::f32});
  const testing::Rows rows = testing::all_logits(session, session.create(), testing::Tokens{1, 2, 3, 19});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(std::memcmp(&file[128 + i * 20 * sizeof(float)], rows[i].data(), 20 * sizeof(float)), 0) << i;
  }

  for (const char* other : {"-t 1 --chunk 2 --ctx 100", "-t 1 --as-prompt", "--as-prompt --chunk 3"}) {
    EXPECT_EQ(on_model(std::string("--tokens 1,2,3,19 ") + other).exit_code, 0) << other;
    EXPECT_EQ(read_all(path("out.npy")), file) << other;  // a CPU has one arithmetic
  }
}

TEST_F(LogitsCommandTest, OptionsReachTheDevice) {
  EXPECT_EQ(on_model("--tokens 5 --device ref --kv q8_0 --profile '" + path("profile") + "'").exit_code, 0);
  EXPECT_TRUE(has(read_all(path("profile")), "\"op\":\"moe_ffn\",\"backend\":\"ref\"")) << read_all(path("profile"));
}

TEST_F(LogitsCommandTest, BadRequestsAreOneLineAndLeaveNoFile) {
  refuses("--tokens 1,20", "token 1 is 20, must be 0 to 19");
  refuses("--tokens 1,-1", "token 1 is -1, must be 0 to 19");
  refuses("--tokens ''", "error: --tokens: there are no tokens\n");
  refuses("--tokens 1,2,3 --ctx 2", "the context is full: 0 tokens and 3 new ones are more than its 2");
  refuses("--tokens 1 --ctx 2000000000", "would fit");
  refuses("--tokens 1 --device abacus", "there is no device 'abacus' here");
}

TEST_F(LogitsCommandTest, BadFilesAreOneLine) {
  const std::string rest = " --tokens 1 -o '" + path("out.npy") + "'";
  expect_error(run("-m '" + path("none.gguf") + "'" + rest), "none.gguf: cannot open");
  expect_error(run("-m '" + folder_.string() + "'" + rest), "this is a directory");
  expect_error(run("-m '" + model_.path().string() + "' --tokens 1 -o '" + path("none/out.npy") + "'"), "none/out.npy");
}

TEST_F(LogitsCommandTest, NeverWritesOverTheModel) {
  testing::tiny_model("olmoe").write(path("set.gguf"), {.max_part_bytes = 8192});
  std::vector<std::string> files;  // all parts of a set
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) files.push_back(entry.path().string());
  ASSERT_GT(files.size(), 1U);
  for (const std::string& output : files) {
    const std::string bytes = read_all(output);
    expect_error(run("-m '" + files[0] + "' --tokens 1 -o '" + output + "'"), "the output is the input");
    EXPECT_EQ(read_all(output), bytes);
  }
}

TEST_F(LogitsCommandTest, WritesThroughAFifoAndToStdout) {
  ASSERT_EQ(on_model("--tokens 1,2").exit_code, 0);
  const std::string file = read_all(path("out.npy"));
  const std::string on = "-m '" + model_.path().string() + "' --tokens 1,2 -o ";
  const std::string fifo = "'" + path("fifo") + "'";
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  EXPECT_EQ(run(on + fifo + " & timeout 20 cat " + fifo).out, file);
  EXPECT_TRUE(std::filesystem::is_fifo(path("fifo")));
  EXPECT_EQ(run(on + "/dev/stdout | cat").out, file);
}

TEST_F(LogitsCommandTest, InterruptedItLeavesNothing) {
  std::string tokens = "1";
  for (int i = 0; i < 30'000; ++i) tokens += ",2";  // seconds of work: attention grows with the square
  for (const char* signal : {"INT", "TERM"}) {
    const Outcome r = run("-m '" + model_.path().string() + "' -o '" + path("out.npy") + "' --tokens " + tokens,
                          std::string("timeout --preserve-status -s ") + signal + " 0.5");
    EXPECT_EQ(r.exit_code, std::string(signal) == "INT" ? 130 : 143);
    EXPECT_EQ(r.err, "error: interrupted: nothing was written\n");
    leaves_nothing();
  }
}

TEST_F(LogitsCommandTest, WrongUsage) {
  expect_wrong_usage("");
  expect_wrong_usage("-m x -o y --tokens 1,x");
  expect_wrong_usage("-m x -o y --tokens 1,");
  expect_wrong_usage("-m x -o y --tokens 99999999999");
  expect_wrong_usage("-m x -o y --tokens 1 --kv q3_k");
  expect_wrong_usage("-m x -o y --tokens 1 --ctx 0");
  for (const char* threads : {"-1", "1.5", "x", "1025", "100000"}) {
    const std::string arguments = std::string("-m x -o y --tokens 1 -t ") + threads;
    expect_wrong_usage(arguments);
    EXPECT_TRUE(has(run(arguments).err, "' is not a whole number from 0 to 1024\n"));
  }
  EXPECT_EQ(run("--help").exit_code, 0);
}

}  // namespace
}  // namespace conclave
