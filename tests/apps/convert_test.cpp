// Runs `conclave convert`: exit codes, what goes to stdout and what to stderr, what is left on the disk.
#include <gtest/gtest.h>

#include <functional>

#include "apps/program.h"
#include "convert/checkpoint_fixture.h"
#include "gguf/file.h"

namespace conclave {
namespace {

namespace fs = std::filesystem;

using testing::CheckpointFixture;
using testing::put_file;
using testing::tiny_checkpoint;

class Convert : public ProgramTest {
 protected:
  Convert() : ProgramTest("convert") {}

  void write(
      const std::string& architecture = "Qwen3MoeForCausalLM",
      const std::function<void(CheckpointFixture&)>& edit = [](CheckpointFixture&) {}) const {
    CheckpointFixture fixture = tiny_checkpoint(architecture);
    edit(fixture);
    fixture.write(folder_ / "hf");
  }

  // An error that leaves nothing behind.
  void expect_refused(const std::string& part, const std::string& arguments = "") const {
    const Outcome r = run(arguments.empty() ? path("hf") + " " + path("out.gguf") : arguments);
    expect_error(r, part);
    EXPECT_EQ(r.out, "");
    expect_nothing_left();
  }
  void expect_nothing_left() const {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("out")) << entry.path();
    }
  }

  Outcome inspect(const std::string& file) const {
    const std::string line =
        "'" CONCLAVE_BIN_DIR "/conclave' inspect '" + file + "' >'" + path("stdout") + "' 2>'" + path("stderr") + "'";
    const int status = std::system(line.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_all(path("stdout")), read_all(path("stderr"))};
  }
};

TEST_F(Convert, EveryFamilyMakesAFileThatInspectTakes) {
  for (const char* name : {"Qwen3MoeForCausalLM", "Qwen2MoeForCausalLM", "MixtralForCausalLM", "OlmoeForCausalLM"}) {
    write(name);
    const Outcome r = run(path("hf") + "/ " + path("out.gguf"));
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.err, "");  // no bar: stderr is a file
    EXPECT_EQ(lines_of(r.out).size(), 1U);
    EXPECT_TRUE(has(r.out, "bits per weight")) << r.out;
    const Outcome i = inspect(path("out.gguf"));
    EXPECT_EQ(i.exit_code, 0) << i.err;
    EXPECT_TRUE(has(i.out, "BF16")) << i.out;
    EXPECT_TRUE(has(i.out, "3, 2 used per token, d_ff 64")) << i.out;
    fs::remove_all(folder_ / "hf");
  }
}

TEST_F(Convert, OptionsAndThreads) {
  write();
  const std::string to = path("hf") + " " + path("a.gguf");
  EXPECT_EQ(run(to + " --type Q8_0 --name 'my model' --pre qwen2 -t 1").exit_code, 0);
  const Outcome i = inspect(path("a.gguf"));
  EXPECT_TRUE(has(i.out, "my model")) << i.out;
  EXPECT_TRUE(has(i.out, "byte-level BPE (qwen2)")) << i.out;
  EXPECT_TRUE(has(i.out, "Q8_0")) << i.out;
  EXPECT_EQ(run(path("hf") + " " + path("b.gguf") + " --type q8_0 --name 'my model' --pre qwen2 -t 3").exit_code, 0);
  EXPECT_EQ(read_all(path("a.gguf")), read_all(path("b.gguf")));
}

TEST_F(Convert, TheFileSaysOfItselfWhatItIsTold) {
  write();
  const std::string to = path("hf") + " " + path("out.gguf");
  expect_refused("--about license=... is given twice", to + " --about license=MIT --about license=none");
  EXPECT_EQ(run("--about license=MIT --about 'description=a = b, c' " + to).exit_code, 0);
  const gguf::File file = gguf::File::open(path("out.gguf"));
  EXPECT_EQ(file.find("general.license")->as_string(), "MIT");
  EXPECT_EQ(file.find("general.description")->as_string(), "a = b, c");
}

TEST_F(Convert, AnOldFileIsReplacedOnlyBySuccess) {
  write();
  put_file(folder_ / "out.gguf", "old");
  EXPECT_EQ(run(path("hf") + " " + path("out.gguf")).exit_code, 0);
  EXPECT_TRUE(read_all(path("out.gguf")).starts_with("GGUF"));
  put_file(folder_ / "out.gguf", "old");
  put_file(folder_ / "hf/config.json", "{");
  expect_error(run(path("hf") + " " + path("out.gguf")), "not JSON");
  EXPECT_EQ(read_all(path("out.gguf")), "old");
}

TEST_F(Convert, NotesGoToStderr) {
  write("Qwen3MoeForCausalLM", [](CheckpointFixture& f) { f.tokenizer = nullptr; });
  const Outcome r = run(path("hf") + " " + path("out.gguf"));
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_TRUE(has(r.err, "note: there is no tokenizer.json")) << r.err;
  EXPECT_EQ(inspect(path("out.gguf")).exit_code, 0);
}

TEST_F(Convert, BadDirectories) {
  expect_refused("there is no such directory");
  put_file(folder_ / "hf", "a file");
  expect_refused("not a directory");
  fs::remove(folder_ / "hf");
  fs::create_directory(folder_ / "hf");
  expect_refused("there is no config.json");
  write();
  fs::remove(folder_ / "hf/model.safetensors");
  expect_refused("there are no tensors");
  write();
  put_file(folder_ / "hf/config.json", "{\"architectures\": [");
  expect_refused("config.json: not JSON: wrong at byte 20");
  put_file(folder_ / "hf/config.json", "[]");
  expect_refused("config.json: must be a JSON object");
  put_file(folder_ / "hf/config.json", std::string(200'000, '['));
  expect_refused("nested deeper than 64 levels");
  write("Qwen3MoeForCausalLM", [](CheckpointFixture& f) { f.config["architectures"] = {"Dense\nModel"}; });
  expect_refused("is not supported; supported: Qwen3MoeForCausalLM");
  write();
  put_file(folder_ / "hf/tokenizer.json", "{]");
  expect_refused("tokenizer.json: not JSON");
}

TEST_F(Convert, BadTensors) {
  write();
  const std::string whole = read_all(path("hf/model.safetensors"));
  put_file(folder_ / "hf/model.safetensors", whole.substr(0, whole.size() - 1));
  expect_refused("the file is cut short");
  put_file(folder_ / "hf/model.safetensors", "");
  expect_refused("too few for a safetensors file");
  write("OlmoeForCausalLM", [](CheckpointFixture& f) { f.tensors.erase("model.norm.weight"); });
  expect_refused("tensor model.norm.weight is missing");
  write("OlmoeForCausalLM", [](CheckpointFixture& f) { f.tensors["model.norm.weight"].dims = {31}; });
  expect_refused("tensor model.norm.weight is [31], must be [32]");
}

TEST_F(Convert, BadShards) {
  tiny_checkpoint("Qwen3MoeForCausalLM").write(folder_ / "hf", 3);
  EXPECT_EQ(run(path("hf") + " " + path("good.gguf")).exit_code, 0);
  const std::string second = read_all(path("hf/model-2.safetensors"));
  fs::remove(folder_ / "hf/model-2.safetensors");
  expect_refused("model-2.safetensors");
  put_file(folder_ / "hf/model-2.safetensors", read_all(path("hf/model-1.safetensors")));
  expect_refused("model-1.safetensors too");
  put_file(folder_ / "hf/model-2.safetensors", testing::safetensors_of("{}", ""));
  expect_refused("but the index says that it is there");
  put_file(folder_ / "hf/model-2.safetensors", second);
  put_file(folder_ / "hf/model.safetensors.index.json", R"({"weight_map":{"a":"../secret"}})");
  expect_refused("the shard of a is not the name of a file");
  put_file(folder_ / "hf/model.safetensors.index.json", R"({"weight_map":{}})");
  expect_refused("it names no tensors");
  put_file(folder_ / "hf/model.safetensors.index.json", "{}");
  expect_refused("weight_map is missing");
}

TEST_F(Convert, BadOutputs) {
  write();
  expect_refused("No such file or directory", path("hf") + " " + path("no/out.gguf"));
  expect_refused("is a directory", path("hf") + " " + folder_.string());
  expect_refused("not a regular file", path("hf") + " /dev/full");
  const std::string tensors = read_all(path("hf/model.safetensors"));
  expect_refused("the output is the input", path("hf") + " " + path("hf/model.safetensors"));
  EXPECT_EQ(read_all(path("hf/model.safetensors")), tensors);
  // As a full disk: no file may grow past 16 KiB.
  const Outcome r = run(path("hf") + " " + path("out.gguf"), "prlimit --fsize=16384");
  expect_error(r, "cannot write: File too large");
  expect_nothing_left();
}

TEST_F(Convert, WrongUsage) {
  write();
  const std::string to = path("hf") + " " + path("out.gguf");
  for (const std::string& arguments :
       {std::string(), path("hf"), to + " --type q9", to + " --pre nonsense", to + " -t 0", to + " --unknown",
        to + " third", to + " --about MIT", to + " --about license=", to + " --about general.name=x"}) {
    expect_wrong_usage(arguments);
  }
  expect_nothing_left();
}

TEST_F(Convert, HelpTeaches) {
  const Outcome r = run("--help");
  EXPECT_EQ(r.exit_code, 0);
  for (const char* part : {"HF_DIR", "--type", "Q4_K_M", "MixtralForCausalLM", "Examples:", "partial file"}) {
    EXPECT_TRUE(has(r.out, part)) << part;
  }
}

}  // namespace
}  // namespace conclave
