#include "model/tokenizer_check.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>

#include "model_fixture.h"
#include "refusal.h"

namespace conclave::testing {
namespace {

using Strings = std::vector<std::string>;

const std::string kBpe = "qwen3moe";
const std::string kSpm = "llama";

template <class T>
Edit change(const std::string& key, const std::function<void(std::vector<T>&)>& edit) {
  return [=](ModelFixture& m) {
    for (auto& [name, value] : m.keys) {
      if (name == key) edit(std::get<std::vector<T>>(value));
    }
  };
}
Edit tokens(const std::function<void(Strings&)>& edit) {
  return change<std::string>("tokenizer.ggml.tokens", edit);
}
Edit merges(const Strings& list) {
  return set("tokenizer.ggml.merges", list);
}
void no_tokenizer(ModelFixture& m) {
  std::erase_if(m.keys, [](const auto& item) { return item.first.starts_with("tokenizer."); });
  m.set("tokenizer.ggml.model", std::string("none"));
}

TEST(TokenizerCheck, ByteBpe) {
  const TempDir dir;
  tiny_model(kBpe).write(dir.path() / "m.gguf");
  const gguf::File file = gguf::File::open(dir.path() / "m.gguf");
  const TokenizerDescription t = describe_tokenizer(file);
  EXPECT_EQ(t.kind, TokenizerKind::byte_bpe);
  EXPECT_EQ(t.pre, "qwen2");
  EXPECT_EQ(t.n_tokens, kTinyVocab);
  EXPECT_EQ(t.n_merges, 2);
  EXPECT_EQ(t.tokens->string_at(16), "ab");
  ASSERT_EQ(t.special.size(), 2U);
  EXPECT_EQ(t.special[0].name, "eos");
  EXPECT_EQ(t.special[0].id, 18);
  EXPECT_EQ(t.add_bos, false);
  EXPECT_EQ(t.add_eos, std::nullopt);
  EXPECT_EQ(t.chat_template, "{{ messages }}");
}

TEST(TokenizerCheck, SentencePiece) {
  const TempDir dir;
  tiny_model(kSpm).write(dir.path() / "m.gguf");
  const gguf::File file = gguf::File::open(dir.path() / "m.gguf");
  const TokenizerDescription t = describe_tokenizer(file);
  EXPECT_EQ(t.kind, TokenizerKind::sentencepiece);
  EXPECT_EQ(t.pre, "");
  EXPECT_EQ(t.n_merges, 0);
  EXPECT_NE(t.scores, nullptr);
  EXPECT_EQ(t.chat_template, std::nullopt);
}

TEST(TokenizerCheck, NeedsNoModel) {
  ModelFixture vocabulary;
  vocabulary.set("general.architecture", std::string("starcoder2"));
  add_byte_bpe(vocabulary);
  const TempDir dir;
  vocabulary.write(dir.path() / "v.gguf");
  EXPECT_EQ(describe_tokenizer(gguf::File::open(dir.path() / "v.gguf")).n_tokens, kTinyVocab);
}

TEST(TokenizerCheck, NoTokenizer) {
  expect_accepted(kBpe, no_tokenizer);
  expect_accepted(kBpe, both(no_tokenizer, set_text("tokenizer.ggml.model", "no_vocab")));
  expect_accepted(kBpe, both(no_tokenizer, set_u32("qwen3moe.vocab_size", kTinyVocab)));
  expect_accepted(kBpe, both(no_tokenizer, set_u32("tokenizer.ggml.eos_token_id", kTinyVocab - 1)));
  expect_refusals({
      {kBpe, both(no_tokenizer, set_u32("qwen3moe.vocab_size", 19)), "tensor token_embd.weight is [20, 64]"},
      {kBpe, both(no_tokenizer, set_u32("tokenizer.ggml.eos_token_id", kTinyVocab)),
       "eos_token_id is 20, must be 0 to 19"},
  });
}

TEST(TokenizerCheck, AcceptsWhatIsOptional) {
  expect_accepted(kBpe, drop("tokenizer.ggml.pre"));
  expect_accepted(kBpe, drop("tokenizer.ggml.token_type"));
  expect_accepted(kBpe, drop("tokenizer.ggml.eos_token_id"));
  expect_accepted(kBpe, merges({}));
  expect_accepted(kBpe, set("tokenizer.ggml.scores", std::vector<float>(kTinyVocab, 0.0F)));
  expect_accepted(kBpe, set("tokenizer.chat_templates", Strings{"tool_use"}));
  expect_accepted(kBpe, set_text("tokenizer.chat_template.tool_use", "{{ tools }}"));
  expect_accepted(kBpe, tokens([](Strings& list) { list[5] = list[6] = ""; }));
  expect_accepted(kSpm, merges({"anything at all"}));  // some converters leave merges that nothing reads
  expect_accepted(kSpm, set_text("tokenizer.ggml.pre", "anything"));
}

TEST(TokenizerCheck, RefusesKindAndPre) {
  expect_refusals({
      {kBpe, drop("tokenizer.ggml.model"), "tokenizer.ggml.model is missing"},
      {kBpe, set_u32("tokenizer.ggml.model", 1), "tokenizer.ggml.model has the type u32, must be string"},
      {kBpe, set_text("tokenizer.ggml.model", "bert"), "tokenizer.ggml.model is 'bert', supported: gpt2, llama"},
      {kBpe, set_text("tokenizer.ggml.pre", "mystery"),
       "tokenizer.ggml.pre is 'mystery', supported: default, gpt-2, qwen2"},
      {kBpe, set("tokenizer.ggml.pre", true), "tokenizer.ggml.pre has the type bool"},
  });
}

TEST(TokenizerCheck, RefusesBadTokens) {
  expect_refusals({
      {kBpe, drop("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens is missing"},
      {kBpe, set("tokenizer.ggml.tokens", Strings{}), "tokenizer.ggml.tokens has 0 tokens"},
      {kBpe, set("tokenizer.ggml.tokens", std::vector<std::int32_t>{1, 2}),
       "tokens has the type array of i32, must be array of string"},
      {kBpe, set_text("tokenizer.ggml.tokens", "abc"), "tokenizer.ggml.tokens has the type string"},
      {kBpe, tokens([](Strings& list) { list[5] = "g"; }), "tokens 5 and 6 are both 'g'"},
      {kBpe, tokens([](Strings& list) { list[5] = "\xff\n"; }), "token 5 is '\\xff\\x0a', which is not UTF-8"},
      {kBpe, both(tokens([](Strings& list) { list.push_back("zz"); }), drop("tokenizer.ggml.token_type")),
       "tensor token_embd.weight is [20, 64], must be [n_vocab, d_model] = [21, 64]"},
      {kBpe, set_u32("qwen3moe.vocab_size", 19), "qwen3moe.vocab_size is 19, but the tokenizer has 20 tokens"},
      {kBpe, set_u32("qwen3moe.vocab_size", 0), "qwen3moe.vocab_size is 0"},
      {kBpe, set_text("qwen3moe.vocab_size", "20"), "qwen3moe.vocab_size has the type string"},
      {kBpe, tokens([](Strings& list) { list.pop_back(); }), "token_type has 20 values for 19 tokens"},
      {kBpe, set("tokenizer.ggml.token_type", std::vector<std::uint32_t>(20, 1)),
       "token_type has the type array of u32"},
      {kBpe, change<std::int32_t>("tokenizer.ggml.token_type", [](auto& t) { t[3] = 7; }),
       "token 3 has the type 7, must be 1 to 6"},
      {kBpe, change<std::int32_t>("tokenizer.ggml.token_type", [](auto& t) { t[3] = -1; }), "token 3 has the type -1"},
      {kSpm, tokens([](Strings& list) { list[4] = "<0x0G>"; }), "is of the byte type but is '<0x0G>'"},
  });
}

TEST(TokenizerCheck, RefusesBadScoresAndMerges) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  expect_refusals({
      {kSpm, drop("tokenizer.ggml.scores"), "tokenizer.ggml.scores is missing"},
      {kSpm, set("tokenizer.ggml.scores", std::vector<float>(19)), "scores has 19 values for 20 tokens"},
      {kSpm, change<float>("tokenizer.ggml.scores", [](auto& s) { s[2] = kNan; }), "the score of token 2 is nan"},
      {kSpm, set("tokenizer.ggml.scores", std::vector<double>(20)),
       "scores has the type array of f64, must be array of f32"},
      {kBpe, set("tokenizer.ggml.scores", std::vector<float>(3)), "scores has 3 values for 20 tokens"},
      {kBpe, drop("tokenizer.ggml.merges"), "tokenizer.ggml.merges is missing"},
      {kBpe, set_text("tokenizer.ggml.merges", "a b"), "merges has the type string"},
      {kBpe, merges({"a b", "ab"}), "merge 1 is 'ab', must be two tokens with one space between"},
      {kBpe, merges({" ab"}), "merge 0 is ' ab', must be two tokens"},
      {kBpe, merges({"ab "}), "merge 0 is 'ab ', must be two tokens"},
      {kBpe, merges({"a b c"}), "merge 0 is 'a b c', must be two tokens"},
      {kBpe, merges({""}), "merge 0 is '', must be two tokens"},
      {kBpe, merges({"a z"}), "merge 0 is 'a z', but 'z' is no token"},
      {kBpe, merges({"b a"}), "merge 0 is 'b a', but 'ba' is no token"},
  });
}

TEST(TokenizerCheck, RefusesBadSpecialTokensFlagsAndTemplates) {
  expect_refusals({
      {kBpe, set_u32("tokenizer.ggml.eos_token_id", 20), "tokenizer.ggml.eos_token_id is 20, must be 0 to 19"},
      {kBpe, set_u32("tokenizer.ggml.bos_token_id", 0xFFFFFFFF), "tokenizer.ggml.bos_token_id is 4294967295"},
      {kBpe, set("tokenizer.ggml.eot_token_id", std::int32_t{-1}), "tokenizer.ggml.eot_token_id is -1"},
      {kBpe, set_text("tokenizer.ggml.eos_token_id", "x"), "tokenizer.ggml.eos_token_id has the type string"},
      {kBpe, set("tokenizer.ggml.fim_pre_token_id", 1.0F), "tokenizer.ggml.fim_pre_token_id has the type f32"},
      {kBpe, set_u32("tokenizer.ggml.add_bos_token", 1), "tokenizer.ggml.add_bos_token has the type u32, must be bool"},
      {kBpe, set_text("tokenizer.ggml.add_eos_token", "yes"), "tokenizer.ggml.add_eos_token has the type string"},
      {kSpm, set_u32("tokenizer.ggml.add_space_prefix", 1), "tokenizer.ggml.add_space_prefix has the type u32"},
      {kBpe, set_u32("tokenizer.chat_template", 1), "tokenizer.chat_template has the type u32, must be string"},
      {kBpe, set_text("tokenizer.chat_templates", "x"), "tokenizer.chat_templates has the type string"},
      {kBpe, set_u32("tokenizer.chat_template.tools", 1), "tokenizer.chat_template.tools has the type u32"},
  });
}

// Quadratic work on a list this long would take hours.
TEST(TokenizerCheck, LongListsAreLinear) {
  constexpr int kTokens = 1'000'000;
  Strings list;
  for (int i = 0; i < kTokens; ++i) list.push_back(std::string("t").append(std::to_string(i)));
  ModelFixture vocabulary;
  vocabulary.set("tokenizer.ggml.model", std::string("gpt2"));
  vocabulary.set("tokenizer.ggml.tokens", list);
  vocabulary.set("tokenizer.ggml.merges", Strings(kTokens / 10, "t1 t2"));
  const TempDir dir;
  vocabulary.write(dir.path() / "v.gguf");
  const gguf::File file = gguf::File::open(dir.path() / "v.gguf");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(describe_tokenizer(file), Error);  // t1t2 is no token; all tokens have been looked at by then
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace conclave::testing
