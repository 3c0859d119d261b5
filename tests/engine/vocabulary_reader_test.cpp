#include "engine/vocabulary_reader.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/vocabulary_file.h"
#include "model/tokenizer_check.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary_fixture.h"

namespace conclave::testing {
namespace {

std::optional<Vocabulary> read(const ModelFixture& m) {
  const TempDir dir;
  m.write(dir.path() / "v.gguf");
  const gguf::File file = gguf::File::open(dir.path() / "v.gguf");
  return read_vocabulary(file);
}

TEST(VocabularyReader, ByteBpeComesBack) {
  Vocabulary v = bpe_vocabulary("starcoder", {"a|b", "ab|c"});
  v.special.eos = add(v, "<|endoftext|>", TokenType::control);
  add(v, "<tool>", TokenType::user_defined);
  const std::optional<Vocabulary> back = read(vocabulary_file(v));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->kind, VocabularyKind::byte_bpe);
  EXPECT_EQ(back->pre, "starcoder");
  EXPECT_EQ(back->tokens, v.tokens);
  EXPECT_EQ(back->types, v.types);
  EXPECT_EQ(back->merges, v.merges);
  EXPECT_EQ(back->special.eos, v.special.eos);
  EXPECT_EQ(back->special.bos, std::nullopt);
  EXPECT_FALSE(back->add_bos);
  EXPECT_FALSE(back->add_space_prefix);
}

TEST(VocabularyReader, SentencePieceComesBack) {
  const Vocabulary v = piece_vocabulary({{"_", -1}, {"a", -2.5F}});
  ModelFixture m = vocabulary_file(v);
  const std::optional<Vocabulary> back = read(m);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->kind, VocabularyKind::sentencepiece);
  EXPECT_EQ(back->tokens, v.tokens);
  EXPECT_EQ(back->scores, v.scores);
  EXPECT_TRUE(back->add_bos);
  EXPECT_FALSE(back->add_eos);
  EXPECT_TRUE(back->add_space_prefix);
  m.set("tokenizer.ggml.add_space_prefix", false);
  m.set("tokenizer.ggml.add_bos_token", false);
  m.set("tokenizer.ggml.add_eos_token", true);
  const std::optional<Vocabulary> changed = read(m);
  EXPECT_FALSE(changed->add_bos);
  EXPECT_TRUE(changed->add_eos);
  EXPECT_FALSE(changed->add_space_prefix);
}

TEST(VocabularyReader, WhatIsNotSaid) {
  ModelFixture m = vocabulary_file(piece_vocabulary({{"_", -1}}));
  m.drop("tokenizer.ggml.bos_token_id");
  m.drop("tokenizer.ggml.eos_token_id");
  m.drop("tokenizer.ggml.token_type");
  const std::optional<Vocabulary> v = read(m);
  EXPECT_EQ(v->special.unknown, 0);
  EXPECT_EQ(v->special.bos, 1);
  EXPECT_EQ(v->special.eos, 2);
  EXPECT_TRUE(v->types.empty());
  EXPECT_TRUE(read(vocabulary_file(bpe_vocabulary("llama3", {})))->add_bos);
  EXPECT_EQ(read(vocabulary_file(bpe_vocabulary("llama3", {})))->pre, "llama-bpe");
}

TEST(VocabularyReader, OtherSpecialIds) {
  ModelFixture m = vocabulary_file(bpe_vocabulary("gpt-2", {}));
  m.set("tokenizer.ggml.eot_token_id", std::uint32_t{7});
  m.set("tokenizer.ggml.fim_pre_token_id", std::uint32_t{8});
  m.set("tokenizer.ggml.suffix_token_id", std::uint32_t{9});
  m.set("tokenizer.ggml.padding_token_id", std::uint32_t{10});
  const std::optional<Vocabulary> v = read(m);
  EXPECT_EQ(v->special.eot, 7);
  EXPECT_EQ(v->special.fim_prefix, 8);
  EXPECT_EQ(v->special.fim_suffix, 9);
}

TEST(VocabularyReader, AFileWithoutVocabulary) {
  ModelFixture m;
  m.set("general.architecture", std::string("qwen3moe"));
  m.set("tokenizer.ggml.model", std::string("none"));
  EXPECT_FALSE(read(m).has_value());
  const TempDir dir;
  m.write(dir.path() / "v.gguf");
  const gguf::File file = gguf::File::open(dir.path() / "v.gguf");
  EXPECT_THROW(read_tokenizer(file), Error);
}

// What the check lets through, the tokenizer must know.
TEST(VocabularyReader, EveryPreTokenizerThatIsAcceptedExists) {
  for (const std::string_view name : known_pre_tokenizers()) EXPECT_NE(find_pre_tokenizer(name), nullptr) << name;
  EXPECT_EQ(known_pre_tokenizers().size(), pre_tokenizers().size());
}

}  // namespace
}  // namespace conclave::testing
