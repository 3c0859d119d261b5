#include "text/special_tokens.h"

#include <gtest/gtest.h>

#include <ctime>

#include "base/error.h"
#include "text/special_names.h"
#include "vocabulary_fixture.h"

namespace conclave::testing {
namespace {

// What is found, each as "position:token".
Strings found(const Vocabulary& v, std::string_view text, const std::vector<TextRange>& trusted = {}) {
  Strings out;
  for (const SpecialMatch& m : SpecialTokens(v).find(text, trusted)) {
    out.push_back(std::to_string(m.position) + ":" + v.tokens[m.id]);
  }
  return out;
}

Vocabulary with_user_defined(const Strings& tokens) {
  Vocabulary v;
  for (const std::string& token : tokens) add(v, token, TokenType::user_defined);
  return v;
}

TEST(SpecialTokens, LongerTokensGoFirst) {
  const Vocabulary v = with_user_defined({"ab", "abcd", "cdef", "b", "efgh!"});
  EXPECT_EQ(found(v, "abcd"), (Strings{"0:abcd"}));
  EXPECT_EQ(found(v, "abcdef"), (Strings{"0:abcd"}));  // of one length, the lower id
  EXPECT_EQ(found(v, "abcdefgh!"), (Strings{"0:abcd", "4:efgh!"}));
  EXPECT_EQ(found(v, "xcdefgh!"), (Strings{"3:efgh!"}));  // the longest of all, wherever it is
  EXPECT_EQ(found(v, "abcefgh!"), (Strings{"0:ab", "3:efgh!"}));
  EXPECT_EQ(found(v, "bbb"), (Strings{"0:b", "1:b", "2:b"}));
  EXPECT_EQ(found(v, "xyz"), (Strings{}));
  EXPECT_EQ(found(v, ""), (Strings{}));
}

TEST(SpecialTokens, AShorterTokenTakesTheRest) {
  const Vocabulary v = with_user_defined({"  ", "   ", "    "});
  EXPECT_EQ(found(v, "x         y"), (Strings{"1:    ", "5:    "}));
  EXPECT_EQ(found(v, "           "), (Strings{"0:    ", "4:    ", "8:   "}));
  EXPECT_EQ(found(v, "          "), (Strings{"0:    ", "4:    ", "8:  "}));
}

TEST(SpecialTokens, ControlTokensOnlyWhereTrusted) {
  Vocabulary v = with_user_defined({"<u>"});
  add(v, "<c>", TokenType::control);
  add(v, "<unk>", TokenType::unknown);
  const std::string text = "<c><u><unk><c>";
  EXPECT_EQ(found(v, text), (Strings{"3:<u>"}));
  EXPECT_EQ(found(v, text, {{0, 14}}), (Strings{"0:<c>", "3:<u>", "6:<unk>", "11:<c>"}));
  EXPECT_EQ(found(v, text, {{0, 5}, {10, 14}}), (Strings{"0:<c>", "3:<u>", "11:<c>"}));
  EXPECT_EQ(found(v, text, {{1, 13}}), (Strings{"3:<u>", "6:<unk>"}));
  EXPECT_EQ(found(v, text, {{0, 2}, {2, 3}}), (Strings{"3:<u>"}));
}

TEST(SpecialTokens, PiecesAreOneTextButTrustIsNot) {
  Vocabulary v = bpe_vocabulary("gpt-2", {"h|i", " |hi"});
  const TokenId start = add(v, "<|start|>x", TokenType::control);
  add(v, "<tool>", TokenType::user_defined);
  const Tokenizer t(v);
  const auto pieces = [&](std::vector<TextPiece> list) { return pieces_of(t, t.encode(list)); };
  EXPECT_EQ(pieces({{"<|start|>x", true}, {"<|start|>x", false}, {"", true}})[0], "<|start|>x");
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<|start|>x", true}, {"<|start|>x", false}}).size(), 11U);
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<|sta", true}, {"rt|>x", true}}), std::vector<TokenId>{start});
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<|sta", true}, {"rt|>x", false}}).size(), 10U);
  EXPECT_EQ(t.encode(std::vector<TextPiece>{{"<|sta", false}, {"rt|>x", true}}).size(), 10U);
  EXPECT_EQ(pieces({{" h", true}, {"i", false}}), (Strings{" hi"}));
  EXPECT_EQ(pieces({{"<to", false}, {"ol>", true}}), (Strings{"<tool>"}));
  EXPECT_EQ(pieces({}), (Strings{}));
  EXPECT_EQ(t.encode("<|start|>x").size(), 10U);
  EXPECT_EQ(t.encode("<|start|>x", {.parse_special = true}), std::vector<TokenId>{start});
}

TEST(SpecialTokens, TooLong) {
  EXPECT_THROW(SpecialTokens(with_user_defined({std::string(kMaxSpecialBytes + 1, 'a')})), Error);
  EXPECT_EQ(
      found(with_user_defined({std::string(kMaxSpecialBytes, 'a')}), std::string(kMaxSpecialBytes * 2, 'a')).size(),
      2U);
}

TEST(SpecialTokens, ManyCandidatesAreQuick) {
  Strings tokens;
  for (int n = 1; n <= 64; ++n) tokens.emplace_back(n, ' ');
  const Vocabulary v = with_user_defined(tokens);
  const std::clock_t start = std::clock();
  EXPECT_EQ(found(v, std::string(200'000, ' ')).size(), 3125U);
  EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC);  // of this process: a busy machine does not count
}

TEST(SpecialNames, ControlLookingTokensBecomeControlTokens) {
  Vocabulary v = bpe_vocabulary("qwen2", {});
  v.types.clear();  // a file without types
  for (const char* token : {"<|im_end|>", "<|fim_prefix|>", "<tool_call>", "<|endoftext|>"})
    v.tokens.emplace_back(token);
  const std::vector<TokenId> ends = settle_special_tokens(v);
  EXPECT_EQ(ends, (std::vector<TokenId>{256, 259}));
  EXPECT_EQ(v.special.eot, 256);
  EXPECT_EQ(v.special.fim_prefix, 257);
  EXPECT_EQ(v.types[256], TokenType::control);
  EXPECT_EQ(v.types[257], TokenType::control);
  EXPECT_EQ(v.types[258], TokenType::normal);
}

TEST(SpecialNames, WhatTheFileSaysStays) {
  Vocabulary v = bpe_vocabulary("qwen2", {});
  const TokenId prefix = add(v, "<|fim_prefix|>", TokenType::user_defined);
  const TokenId eot = add(v, "<over>", TokenType::control);
  add(v, "<|im_end|>", TokenType::control);
  v.special.fim_prefix = prefix;
  v.special.eot = eot;
  const std::vector<TokenId> ends = settle_special_tokens(v);
  EXPECT_EQ(v.special.eot, eot);
  EXPECT_EQ(v.types[prefix], TokenType::user_defined);
  EXPECT_EQ(ends, (std::vector<TokenId>{eot, eot + 1}));
}

TEST(SpecialNames, EndsOfPartsAreNoEnds) {
  Vocabulary v = bpe_vocabulary("qwen2", {});
  const TokenId end = add(v, "<|end|>", TokenType::control);
  EXPECT_EQ(settle_special_tokens(v), (std::vector<TokenId>{end}));
  v.special.eot.reset();
  add(v, "<|return|>", TokenType::control);
  add(v, "<|call|>", TokenType::control);
  EXPECT_EQ(settle_special_tokens(v), (std::vector<TokenId>{end + 1, end + 2}));
  EXPECT_EQ(v.types[end], TokenType::user_defined);
}

}  // namespace
}  // namespace conclave::testing
