// `conclave route` as a shell sees it.
#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "apps/program.h"
#include "engine/random_model.h"

namespace conclave {
namespace {

using Json = nlohmann::json;

class RouteTest : public ProgramTest {
 protected:
  RouteTest() : ProgramTest("route"), model_("qwen3moe", DType::q8_0) {}

  Outcome on_model(const std::string& arguments) const {
    return run("-m '" + model_.path().string() + "' " + arguments, "COLUMNS=80");
  }
  // Writes a file of its own and gives its contents.
  std::string written(const std::string& arguments, const std::string& name) const {
    const Outcome r = on_model(arguments + " --out '" + path(name) + "'");
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.err, "");
    EXPECT_TRUE(has(r.out, "wrote " + path(name))) << r.out;
    return read_all(path(name));
  }
  std::vector<Json> trace(const std::string& arguments) const {
    std::vector<Json> lines;
    for (const std::string& line : lines_of(written(arguments, "trace.jsonl"))) lines.push_back(Json::parse(line));
    return lines;
  }
  // An error that leaves no file behind, whole or not.
  void refuses(const std::string& arguments, const std::string& part) const {
    expect_error(on_model(arguments + " --out '" + path("heat.png") + "'"), part);
    leaves_nothing();
  }
  void leaves_nothing() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      EXPECT_TRUE(entry.path().filename() == "stdout" || entry.path().filename() == "stderr") << entry.path();
    }
  }

  testing::RandomModel model_;
};

TEST_F(RouteTest, TraceHasEveryTokenInEveryLayer) {
  const std::vector<Json> lines = trace("-p abcabdc");
  ASSERT_EQ(lines.size(), 1U + 4 + testing::kTinyLayers);
  EXPECT_EQ(lines[0].at("n_tokens"), 4);
  EXPECT_EQ(lines[0].at("top_k"), testing::kTinyTopK);
  EXPECT_EQ(lines[0].at("model"), "tiny");
  const char* const texts[] = {"abc", "ab", "d", "c"};
  std::vector<std::vector<int>> load(testing::kTinyLayers, std::vector<int>(testing::kTinyExperts));
  for (std::size_t t = 0; t < 4; ++t) {
    const Json& token = lines[1 + t];
    EXPECT_EQ(token.at("text"), texts[t]);
    EXPECT_EQ(token.at("position"), t);
    ASSERT_EQ(token.at("experts").size(), load.size());
    for (std::size_t l = 0; l < load.size(); ++l) {
      const auto experts = token.at("experts")[l].get<std::vector<int>>();
      EXPECT_EQ(std::set<int>(experts.begin(), experts.end()).size(), 2U);
      for (const int e : experts) ++load[l].at(static_cast<std::size_t>(e));
      const auto weights = token.at("weights")[l].get<std::vector<double>>();
      EXPECT_NEAR(weights.at(0) + weights.at(1), 1, 1e-6);
    }
  }
  for (std::size_t l = 0; l < load.size(); ++l) {
    const auto told = lines[5 + l].at("load").get<std::vector<int>>();
    EXPECT_EQ(told, load[l]) << l;
    int sum = 0;
    for (const int n : told) sum += n;
    EXPECT_EQ(sum, 4 * testing::kTinyTopK);
  }
}

TEST_F(RouteTest, IsWhatTheSessionSays) {
  const std::vector<Json> lines = trace("--tokens 3,1,4,1,5 -t 2");
  Session session(model_.open(), {.context = 8, .trace_routing = true});
  const testing::Tokens tokens{3, 1, 4, 1, 5};
  const StepInput input{.sequence = session.create(), .tokens = tokens};
  int rows = 0;
  session.step({&input, 1}, {.routing = [&](const RoutingRow& row) {
                 const Json& experts = lines[1 + row.token].at("experts")[static_cast<std::size_t>(row.layer)];
                 EXPECT_EQ(experts.get<std::vector<int>>(), std::vector<int>(row.experts.begin(), row.experts.end()));
                 ++rows;
               }});
  EXPECT_EQ(rows, 5 * testing::kTinyLayers);

  const std::string once = read_all(path("trace.jsonl"));
  EXPECT_EQ(written("--tokens 3,1,4,1,5 -t 1 --chunk 2 --ctx 100", "trace.jsonl"), once);
}

TEST_F(RouteTest, GeneratedTokensAreTracedToo) {
  const std::vector<Json> lines = trace("--tokens 3,1 -n 4");
  const auto n_tokens = lines[0].at("n_tokens").get<std::size_t>();  // fewer than 6 where the model ends
  ASSERT_GT(n_tokens, 2U);
  ASSERT_LE(n_tokens, 6U);
  ASSERT_EQ(lines.size(), 1 + n_tokens + testing::kTinyLayers);
  std::string ids = "3,1";
  for (std::size_t t = 2; t < n_tokens; ++t) ids += "," + std::to_string(lines[1 + t].at("id").get<int>());
  EXPECT_EQ(trace("--tokens " + ids), lines);
}

TEST_F(RouteTest, PicturesAndPages) {
  std::ofstream(path("text")) << "abcdefghij";
  const std::string png = written("-f '" + path("text") + "'", "heat.png");
  EXPECT_TRUE(png.starts_with("\x89PNG\r\n\x1a\n"));
  EXPECT_EQ(png.substr(12, 4), "IHDR");
  EXPECT_TRUE(png.ends_with(std::string("\0\0\0\0IEND\xae\x42\x60\x82", 12)));
  const std::string html = written("-f '" + path("text") + "'", "heat.html");
  EXPECT_TRUE(html.starts_with("<!DOCTYPE html>")) << html.substr(0, 80);
  EXPECT_TRUE(has(html, "</html>"));
  EXPECT_TRUE(has(html, "tiny"));
}

TEST_F(RouteTest, SeveralFilesAtOnce) {
  const Outcome r =
      on_model("-p abc --out '" + path("a.png") + "' --out '" + path("b.html") + "' -o '" + path("c.jsonl") + "'");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  for (const char* name : {"a.png", "b.html", "c.jsonl"}) EXPECT_GT(std::filesystem::file_size(path(name)), 100U);
}

TEST_F(RouteTest, HeatMapAndTableInTheTerminal) {
  const Outcome r = on_model("-p abcdefgh");
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  for (const char* part : {"tiny", "2 expert layers, 6 experts, 2 per token; 6 tokens", "entropy, bits", "never used",
                           "max/mean", "busiest"}) {
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
  }
  EXPECT_FALSE(has(r.out, "\x1b")) << "colours in a file";
  for (const std::string& line : lines_of(r.out)) EXPECT_LE(line.size(), 80U) << line;
}

TEST_F(RouteTest, BadRequestsAreOneLineAndLeaveNoFile) {
  refuses("-p ''", "the prompt is empty");
  refuses("--tokens ''", "the prompt is empty");
  refuses("--tokens 1,20", "token 1 is 20, must be 0 to 19");
  refuses("-p abc --ctx 1 -n 1", "the context is too small");
  refuses("-f '" + path("none") + "'", "none: cannot open");
  refuses("-f '" + folder_.string() + "'", "Is a directory");
  refuses("-p abc --device abacus", "there is no device 'abacus' here");
  expect_error(on_model("-p abc --out '" + path("none/heat.png") + "'"), "none/heat.png");
  expect_error(run("-m '" + path("none.gguf") + "' -p abc"), "none.gguf: cannot open");
}

TEST_F(RouteTest, NeverWritesOverTheModel) {
  std::filesystem::create_symlink(model_.path(), path("model.png"));
  const std::string bytes = read_all(model_.path());
  expect_error(on_model("-p abc --out '" + path("model.png") + "'"), "the output is the input");
  EXPECT_EQ(read_all(model_.path()), bytes);
  EXPECT_TRUE(std::filesystem::is_symlink(path("model.png")));
}

TEST_F(RouteTest, InterruptedItLeavesNothing) {
  for (const char* signal : {"INT", "TERM"}) {
    std::string tokens = "1";
    for (int i = 0; i < 30'000; ++i) tokens += ",2";  // seconds of work: attention grows with the square
    const Outcome r = run("-m '" + model_.path().string() + "' -o '" + path("heat.png") + "' --tokens " + tokens,
                          std::string("timeout --preserve-status -s ") + signal + " 0.5");
    EXPECT_EQ(r.exit_code, std::string(signal) == "INT" ? 130 : 143);
    EXPECT_EQ(r.err, "error: interrupted: nothing was written\n");
    leaves_nothing();
  }
}

TEST_F(RouteTest, WritesThroughAFifo) {
  const std::string jsonl = written("-p abc", "trace.jsonl");
  ASSERT_EQ(::mkfifo(path("fifo.jsonl").c_str(), 0600), 0);
  const std::string fifo = "'" + path("fifo.jsonl") + "'";
  EXPECT_EQ(on_model("-p abc -o " + fifo + " >/dev/null & timeout 20 cat " + fifo).out, jsonl);
  EXPECT_TRUE(std::filesystem::is_fifo(path("fifo.jsonl")));
}

TEST_F(RouteTest, FilesWithoutAVocabularyTakeTokens) {
  testing::ModelFixture bare = testing::tiny_model("olmoe");
  testing::retype_blocks(bare, DType::f32);
  std::erase_if(bare.keys, [](const auto& item) { return item.first.starts_with("tokenizer."); });
  bare.set("tokenizer.ggml.model", std::string("no_vocab"));
  bare.set("olmoe.vocab_size", std::uint32_t{testing::kTinyVocab});
  testing::write_random(bare, path("bare.gguf"), 1);
  const std::string model = "-m '" + path("bare.gguf") + "' ";
  expect_error(run(model + "-p abc"), "no vocabulary");
  EXPECT_EQ(run(model + "--tokens 1,2,3").exit_code, 0);
}

TEST_F(RouteTest, WrongUsage) {
  expect_wrong_usage("");
  expect_wrong_usage("-m x");
  expect_wrong_usage("-m '' -p x");
  expect_wrong_usage("-m x -p a --tokens 1");
  expect_wrong_usage("-m x --tokens 1,x");
  expect_wrong_usage("-m x -p a --out heat.gif");
  expect_wrong_usage("-m x -p a --out .png");
  expect_wrong_usage("-m x -p a --out");
  expect_wrong_usage("-m x -p a -n -1");
  expect_wrong_usage("-m x -p a --kv q3_k");
  const Outcome help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_TRUE(has(help.out, "conclave route -p 'Once upon a time'")) << help.out;
}

}  // namespace
}  // namespace conclave
