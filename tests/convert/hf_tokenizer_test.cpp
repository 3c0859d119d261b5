#include "convert/hf_tokenizer.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "convert/checkpoint_fixture.h"
#include "model/model_fixture.h"

namespace conclave {
namespace {

using testing::CheckpointFixture;
using testing::TempDir;
using testing::tiny_checkpoint;

using Change = std::function<void(CheckpointFixture&)>;

HfTokenizer read(
    const Change& edit = [](CheckpointFixture&) {}, const std::string& pre = "",
    const std::string& architecture = "Qwen3MoeForCausalLM") {
  const TempDir dir;
  CheckpointFixture fixture = tiny_checkpoint(architecture);
  edit(fixture);
  fixture.write(dir.path());
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  return read_hf_tokenizer(checkpoint, read_hf_config(checkpoint.config()), pre);
}

const gguf::Metadata* find(const HfTokenizer& tokenizer, const std::string& name) {
  for (const auto& [held, value] : tokenizer.keys) {
    if (held == name || held == "tokenizer.ggml." + name) return &value;
  }
  return nullptr;
}

template <class T>
T key(const HfTokenizer& tokenizer, const std::string& name) {
  const gguf::Metadata* value = find(tokenizer, name);
  if (value != nullptr && std::holds_alternative<T>(*value)) return std::get<T>(*value);
  ADD_FAILURE() << "no key " << name << " of that type";
  return T{};
}

std::string refusal(const Change& edit) {
  try {
    read(edit);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HfTokenizer, ByteLevel) {
  const HfTokenizer t = read();
  EXPECT_EQ(key<std::string>(t, "model"), "gpt2");
  EXPECT_EQ(key<std::string>(t, "pre"), "gpt-2");
  const auto tokens = key<std::vector<std::string>>(t, "tokens");
  ASSERT_EQ(tokens.size(), 20U);
  EXPECT_EQ(tokens[15], "abc");
  EXPECT_EQ(tokens[16], "<|end|>");
  EXPECT_EQ(tokens[19], "[PAD19]");
  const auto types = key<std::vector<std::int32_t>>(t, "token_type");
  EXPECT_EQ(std::vector<std::int32_t>(types.begin() + 15, types.end()), (std::vector<std::int32_t>{1, 3, 4, 5, 5}));
  EXPECT_EQ(key<std::vector<std::string>>(t, "merges"), (std::vector<std::string>{"a b", "ab c"}));
  EXPECT_EQ(key<std::uint32_t>(t, "eos_token_id"), 16U);
  EXPECT_EQ(key<bool>(t, "add_bos_token"), false);
  EXPECT_EQ(key<std::string>(t, "tokenizer.chat_template"), "{{ messages }}");
  EXPECT_EQ(find(t, "bos_token_id"), nullptr);
  EXPECT_EQ(key<std::string>(read({[](CheckpointFixture&) {}}, "", "OlmoeForCausalLM"), "pre"), "olmo");
  EXPECT_EQ(key<std::string>(read({[](CheckpointFixture&) {}}, "falcon"), "pre"), "falcon");
}

TEST(HfTokenizer, MergesAsPairsAndSpecialTokensByEveryRoad) {
  const HfTokenizer t = read([](CheckpointFixture& f) {
    f.tokenizer["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"a b", "c"})});
    f.tokenizer["post_processor"] = {
        {"type", "Sequence"},
        {"processors",
         {{{"type", "TemplateProcessing"},
           {"single", {{{"SpecialToken", {{"id", "<|end|>"}}}}, {{"Sequence", {{"id", "A"}}}}}}}}}};
    f.tokenizer_config = {
        {"bos_token", {{"content", "<|end|>"}}},
        {"chat_template", {{{"name", "default"}, {"template", "D"}}, {{"name", "tools"}, {"template", "T"}}}},
        {"added_tokens_decoder", {{"18", {{"content", "<extra>"}, {"special", true}}}}}};
    f.config["pad_token_id"] = 3;
    f.config["unk_token_id"] = 9999;  // past the vocabulary: nobody meant it
    f.generation_config = {{"eos_token_id", {17, 16, 4}}};
  });
  EXPECT_EQ(key<std::vector<std::string>>(t, "merges")[1], "a\u0120b c");
  EXPECT_EQ(key<std::uint32_t>(t, "bos_token_id"), 16U);
  EXPECT_EQ(key<std::uint32_t>(t, "eos_token_id"), 17U);
  EXPECT_EQ(key<std::uint32_t>(t, "eot_token_id"), 16U);
  EXPECT_EQ(key<std::uint32_t>(t, "eom_token_id"), 4U);
  EXPECT_EQ(key<std::uint32_t>(t, "padding_token_id"), 3U);
  EXPECT_EQ(find(t, "unknown_token_id"), nullptr);
  EXPECT_EQ(key<bool>(t, "add_bos_token"), true);
  EXPECT_EQ(key<bool>(t, "add_eos_token"), false);
  EXPECT_EQ(key<std::vector<std::string>>(t, "tokens")[18], "<extra>");
  EXPECT_EQ(key<std::string>(t, "tokenizer.chat_template"), "D");
  EXPECT_EQ(key<std::string>(t, "tokenizer.chat_template.tools"), "T");
  EXPECT_EQ(key<std::vector<std::string>>(t, "tokenizer.chat_templates"), std::vector<std::string>{"tools"});
}

TEST(HfTokenizer, ATemplateFileComesFirst) {
  const HfTokenizer t = read([](CheckpointFixture& f) { f.chat_template = "from the file"; });
  EXPECT_EQ(key<std::string>(t, "tokenizer.chat_template"), "from the file");
}

TEST(HfTokenizer, SentencePiece) {
  const HfTokenizer t = read([](CheckpointFixture& f) {
    f.tokenizer["model"] = {
        {"type", "BPE"},
        {"byte_fallback", true},
        {"unk_token", "<unk>"},
        {"vocab",
         {{"<unk>", 0}, {"<s>", 1}, {"<0x0A>", 2}, {"a", 3}, {"b", 4}, {"ab", 6}, {"\u2581ab", 5}, {"\u2581", 7}}},
        // Two ways to the same piece, and the piece with the larger id first.
        {"merges", Json::array({"a b", "\u2581 ab", "\u2581a b"})}};
    f.tokenizer["added_tokens"] = {{{"id", 0}, {"content", "<unk>"}, {"special", true}},
                                   {{"id", 1}, {"content", "<s>"}, {"special", true}},
                                   {{"id", 8}, {"content", "\u2581x"}, {"special", false}}};
    f.tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}}}}};
    f.tokenizer_config = {{"bos_token", "<s>"}, {"add_bos_token", true}};
  });
  EXPECT_EQ(key<std::string>(t, "model"), "llama");
  const auto types = key<std::vector<std::int32_t>>(t, "token_type");
  EXPECT_EQ(std::vector<std::int32_t>(types.begin(), types.begin() + 10),
            (std::vector<std::int32_t>{2, 3, 6, 1, 1, 1, 1, 1, 4, 5}));
  const auto scores = key<std::vector<float>>(t, "scores");
  EXPECT_EQ(scores[6], 0.0F);   // ab
  EXPECT_EQ(scores[5], -1.0F);  // ▁ab
  EXPECT_LT(scores[3], -1.0F);  // a: what no merge makes comes after
  EXPECT_EQ(key<std::vector<std::string>>(t, "tokens")[8], " x");
  EXPECT_EQ(key<bool>(t, "add_bos_token"), true);
  EXPECT_EQ(key<bool>(t, "add_space_prefix"), true);
  EXPECT_EQ(find(t, "merges"), nullptr);
}

TEST(HfTokenizer, WithoutOneTheModelRunsOnIds) {
  const HfTokenizer t = read([](CheckpointFixture& f) { f.tokenizer = nullptr; });
  EXPECT_EQ(key<std::string>(t, "model"), "none");
  EXPECT_EQ(t.notes.size(), 1U);
}

TEST(HfTokenizer, RefusesWhatItCannotConvert) {
  const std::pair<Change, std::string> cases[] = {
      {[](CheckpointFixture& f) { f.tokenizer = Json::array(); }, "must be a JSON object"},
      {[](CheckpointFixture& f) { f.tokenizer.erase("model"); }, "model is missing"},
      {[](CheckpointFixture& f) { f.tokenizer["model"]["type"] = "Unigram"; }, "type Unigram is not supported"},
      {[](CheckpointFixture& f) { f.tokenizer["model"].erase("vocab"); }, "vocab is missing"},
      {[](CheckpointFixture& f) { f.tokenizer["model"].erase("merges"); }, "merges is missing"},
      {[](CheckpointFixture& f) { f.tokenizer["model"]["vocab"]["zz"] = 20; }, "id 20, but vocab_size is 20"},
      {[](CheckpointFixture& f) { f.tokenizer["model"]["vocab"]["zz"] = -1; }, "has the id -1"},
      {[](CheckpointFixture& f) { f.tokenizer["model"]["vocab"]["zz"] = "x"; }, "has the id -1"},
      {[](CheckpointFixture& f) { f.tokenizer["model"]["vocab"]["zz"] = 3; }, "both have the id 3"},
      {[](CheckpointFixture& f) { f.tokenizer["model"]["merges"][1] = "abc"; }, "merge 1 is not a pair"},
      {[](CheckpointFixture& f) {
         f.tokenizer["model"]["merges"][1] = {"a", 2};
       },
       "merge 1 is not a pair"},
      {[](CheckpointFixture& f) { f.tokenizer["added_tokens"][0].erase("content"); }, "has no content"},
      {[](CheckpointFixture& f) { f.tokenizer["added_tokens"][0]["id"] = 1e9; }, "has the id -1"},
      {[](CheckpointFixture& f) {
         f.tokenizer["pre_tokenizer"] = {{"type", "Whitespace"}};
       },
       "--pre"},
      {[](CheckpointFixture& f) { f.tokenizer_config["chat_template"] = 5; }, "chat_template is 5"},
      {[](CheckpointFixture& f) {
         f.tokenizer_config["chat_template"] = {{{"template", "x"}}};
       },
       "named templates"},
      {[](CheckpointFixture& f) { f.tokenizer_config["add_bos_token"] = "yes"; }, "add_bos_token is \"yes\""},
  };
  for (const auto& [edit, part] : cases) {
    const std::string said = refusal(edit);
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
}

}  // namespace
}  // namespace conclave
