// Runs the program itself: exit codes, what goes to stdout and what to stderr.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/model_fixture.h"

namespace conclave::testing {
namespace {

struct Outcome {
  int exit_code;  // -1 where a signal ended it
  std::string out;
  std::string err;
};

std::string read_all(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

class Inspect : public ::testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments, const std::string& stdout_to = "") const {
    const std::string out = stdout_to.empty() ? (dir_.path() / "stdout").string() : stdout_to;
    const std::string err = (dir_.path() / "stderr").string();
    std::string command = quoted(CONCLAVE_BIN_DIR "/conclave");
    for (const std::string& word : arguments) command += " " + quoted(word);
    const int status = std::system((command + " >" + quoted(out) + " 2>" + quoted(err)).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, stdout_to.empty() ? read_all(out) : "", read_all(err)};
  }

  std::string path(const std::string& name) const { return (dir_.path() / name).string(); }

  std::string model(
      const std::string& family, const Edit& edit = [](ModelFixture&) {}) const {
    ModelFixture fixture = tiny_model(family);
    edit(fixture);
    fixture.write(path(family + ".gguf"));
    return path(family + ".gguf");
  }

  // Exit code 1, nothing on stdout, one line on stderr.
  void expect_error(const Outcome& outcome, const std::string& part) const {
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(outcome.err.starts_with("error: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }

  TempDir dir_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Inspect, TellsWhatAModelIs) {
  const Outcome r = run({"inspect", model("qwen2moe")});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  for (const std::string part :
       {"qwen2moe", "tiny", "active per token", "6, 2 used per token, d_ff 32; 1 shared, d_ff 96",
        "4 heads, 2 KV heads, d_head 16", "8192 tokens", "byte-level BPE (qwen2)", "bits/weight", "Q8_0", "KV cache",
        "with chat template"}) {
    EXPECT_TRUE(has(r.out, part)) << part << "\n" << r.out;
  }
  EXPECT_FALSE(has(r.out, "blk.0.attn_q.weight"));
  std::size_t start = 0;
  while (start < r.out.size()) {  // the first line holds a path of any length
    const std::size_t end = r.out.find('\n', start);
    if (start > 0) {
      EXPECT_LE(end - start, 100U);
    }
    start = end + 1;
  }
}

TEST_F(Inspect, ListsTensors) {
  const Outcome r = run({"inspect", "--tensors", model("qwen3moe")});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_TRUE(has(r.out, "blk.1.ffn_down_exps.weight"));
  EXPECT_TRUE(has(r.out, "[6, 64, 32]"));
}

TEST_F(Inspect, Json) {
  const std::string file = model("qwen3moe");
  const Outcome r = run({"inspect", file, "--json"});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j["file"]["path"], file);
  EXPECT_EQ(j["file"]["version"], 3);
  EXPECT_EQ(j["architecture"], "qwen3moe");
  EXPECT_EQ(j["name"], "tiny");
  EXPECT_EQ(j["layers"], kTinyLayers);
  EXPECT_EQ(j["d_model"], kTinyModel);
  EXPECT_EQ(j["vocabulary"], kTinyVocab);
  EXPECT_EQ(j["context_length"], 8192);
  EXPECT_EQ(j["norm_epsilon"], 1e-6);
  EXPECT_EQ(j["attention"]["heads"], kTinyHeads);
  EXPECT_EQ(j["attention"]["d_head"], 32);
  EXPECT_EQ(j["attention"]["qk_norm"], "per_head");
  EXPECT_EQ(j["rope"]["base"], 1e6);
  EXPECT_EQ(j["experts"]["count"], kTinyExperts);
  EXPECT_EQ(j["experts"]["used"], kTinyTopK);
  EXPECT_EQ(j["experts"]["renormalize"], true);
  EXPECT_EQ(j["tokenizer"]["kind"], "byte_bpe");
  EXPECT_EQ(j["tokenizer"]["pre"], "qwen2");
  EXPECT_EQ(j["tokenizer"]["special"]["eos"], 18);
  EXPECT_EQ(j["tokenizer"]["chat_template"], true);
  EXPECT_GT(j["parameters"]["total"], j["parameters"]["active_per_token"]);
  EXPECT_EQ(j["memory"]["kv_bytes_per_token"], 512);
  EXPECT_EQ(j["memory"]["contexts"].size(), 2U);
  EXPECT_EQ(j["memory"]["contexts"][0]["kv_bytes"], 512 * 4096);
  EXPECT_FALSE(j.contains("tensors"));
}

TEST_F(Inspect, JsonTensors) {
  const Outcome r = run({"inspect", "--json", "--tensors", model("llama")});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j["tokenizer"]["kind"], "sentencepiece");
  EXPECT_TRUE(j["tokenizer"]["pre"].is_null());
  const auto& tensors = j["tensors"];
  std::uint64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor["bytes"].get<std::uint64_t>();
  EXPECT_EQ(tensors[0]["name"], "token_embd.weight");
  EXPECT_EQ(tensors[0]["shape"], nlohmann::json({kTinyVocab, kTinyModel}));
  EXPECT_EQ(bytes, j["memory"]["weights_bytes"].get<std::uint64_t>());
}

TEST_F(Inspect, NamesOfAnyBytes) {
  const std::string file = model("olmoe", set_text("general.name", "caf\xe9\x1b[31m\nred"));
  const Outcome text = run({"inspect", file});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_TRUE(has(text.out, "caf\\xe9\\x1b[31m\\x0ared")) << text.out;
  const Outcome json = run({"inspect", file, "--json"});
  EXPECT_EQ(json.exit_code, 0) << json.err;
  EXPECT_TRUE(nlohmann::json::accept(json.out));
}

TEST_F(Inspect, RefusesWhatTheRunnerWould) {
  expect_error(run({"inspect", model("qwen3moe", drop("qwen3moe.block_count"))}), "qwen3moe.block_count is missing");
  expect_error(run({"inspect", "--json", model("llama", drop("llama.expert_count"))}),
               "not a mixture-of-experts model");
  expect_error(run({"inspect", model("olmoe", drop_tensor("blk.1.attn_q.weight"))}),
               "olmoe.gguf: tensor blk.1.attn_q.weight is missing");
  std::ofstream(path("junk.gguf")) << "this is not a model";
  expect_error(run({"inspect", path("junk.gguf")}), "junk.gguf");
  std::ofstream(path("empty.gguf")).flush();
  expect_error(run({"inspect", path("empty.gguf")}), "empty.gguf");
  std::string bytes = read_all(model("qwen3moe"));
  std::ofstream(path("cut.gguf"), std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  expect_error(run({"inspect", path("cut.gguf")}), "cut.gguf");
}

TEST_F(Inspect, RefusesWhatIsNoFile) {
  expect_error(run({"inspect", path("none.gguf")}), "none.gguf");
  expect_error(run({"inspect", dir_.path().string()}), "directory");
  expect_error(run({"inspect", path("line\nbreak.gguf")}), "line\\x0abreak.gguf");
  expect_error(run({"inspect", ""}), "error: ");
}

TEST_F(Inspect, OutputThatCannotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  expect_error(run({"inspect", model("qwen3moe")}, "/dev/full"), "cannot write the output");
  expect_error(run({"--help"}, "/dev/full"), "cannot write the output");
}

TEST_F(Inspect, WrongUsage) {
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"inspect"},
                                                       {"inspekt", "x"},
                                                       {"--colour"},
                                                       {"inspect", "--jason", "x"},
                                                       {"inspect", "x", "y"},
                                                       {"inspect", "x", "--a\nb"}};
  for (const auto& arguments : wrong) {
    const Outcome r = run(arguments);
    EXPECT_EQ(r.exit_code, 2) << r.err;
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(r.err.starts_with("error: ")) << r.err;
    EXPECT_TRUE(has(r.err, "--help")) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 2) << r.err;
  }
}

TEST_F(Inspect, Help) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"inspect", "--help"}, {"-h"}}) {
    const Outcome r = run(arguments);
    EXPECT_EQ(r.exit_code, 0);
    EXPECT_EQ(r.err, "");
    EXPECT_TRUE(has(r.out, "Example")) << r.out;
    EXPECT_TRUE(has(r.out, "conclave inspect model.gguf")) << r.out;
  }
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("conclave ")) << version.out;
}

}  // namespace
}  // namespace conclave::testing
