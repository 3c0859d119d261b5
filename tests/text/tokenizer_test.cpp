#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file_text.h"
#include "cpu_time.h"
#include "text/pre_tokenizer.h"
#include "vocabulary_fixture.h"

namespace conclave::testing {
namespace {

const Strings kMerges = {"h|e",   "l|l", "he|ll",   "hell|o", " |w",   "o|r",
                         " w|or", "l|d", " wor|ld", "a|a",    "aa|aa", " | "};

TEST(ByteBpe, MergesByRankThenFromTheLeft) {
  const Tokenizer t(bpe_vocabulary("gpt-2", kMerges));
  EXPECT_EQ(pieces_of(t, t.encode("hello world")), (Strings{"hello", " world"}));
  EXPECT_EQ(pieces_of(t, t.encode("helo")), (Strings{"he", "l", "o"}));
  EXPECT_EQ(pieces_of(t, t.encode("aaaaaaa")), (Strings{"aaaa", "aa", "a"}));
  EXPECT_EQ(pieces_of(t, t.encode("aaaaa")), (Strings{"aaaa", "a"}));
  // "b c" has the better rank, so "a b" never happens.
  const Tokenizer order(bpe_vocabulary("gpt-2", {"b|c", "a|b", "ab|c"}));
  EXPECT_EQ(pieces_of(order, order.encode("abc")), (Strings{"a", "bc"}));
  // A merge that only exists after a worse one, with a better rank than others still waiting.
  const Tokenizer late(bpe_vocabulary("gpt-2", {"ab|c", "x|y", "a|b"}));
  EXPECT_EQ(pieces_of(late, late.encode("abcxy")), (Strings{"abc", "xy"}));
}

TEST(ByteBpe, MergesStayInsideWords) {
  const Tokenizer t(bpe_vocabulary("gpt-2", {"o| ", "d|!"}));
  EXPECT_EQ(pieces_of(t, t.encode("o d!")), (Strings{"o", " ", "d", "!"}));
}

TEST(ByteBpe, WholeWordsComeBeforeMerges) {
  Vocabulary v = bpe_vocabulary("llama-bpe", {"a|b", "b|c"});
  add(v, "abc");
  const Tokenizer whole(v);
  EXPECT_EQ(pieces_of(whole, whole.encode("abc abcd")), (Strings{"abc", " ", "ab", "c", "d"}));
  v.pre = "qwen2";
  const Tokenizer merged(v);
  EXPECT_EQ(pieces_of(merged, merged.encode("abc")), (Strings{"ab", "c"}));
}

TEST(ByteBpe, WholeWordsAreNeverControlTokens) {
  Vocabulary v = bpe_vocabulary("llama-bpe", {});
  add(v, "stop", TokenType::control);
  const Tokenizer t(v);
  EXPECT_EQ(t.encode("stop").size(), 4U);
}

TEST(ByteBpe, RefusesWhatItCannotUse) {
  EXPECT_THROW(Tokenizer(bpe_vocabulary("no-such", {})), Error);
  Vocabulary v = bpe_vocabulary("gpt-2", {});
  v.merges = {"a zz"};
  EXPECT_THROW(Tokenizer{v}, Error);
  v.merges = {"a"};
  EXPECT_THROW(Tokenizer{v}, Error);
  v.merges.clear();
  v.types.pop_back();
  EXPECT_THROW(Tokenizer{v}, Error);
  EXPECT_THROW(Tokenizer(Vocabulary{}), Error);
}

TEST(ByteBpe, BytesWithoutATokenAreCountedAndLeftOut) {
  Vocabulary v = bpe_vocabulary("gpt-2", {});
  v.tokens['\v'] = "gone";
  v.tokens[0xFF] = "gone too";
  const Tokenizer t(v);
  EXPECT_FALSE(t.covers_all_bytes());
  EXPECT_EQ(t.uncovered_bytes("a\vb\v"), 2U);
  EXPECT_EQ(t.decode(t.encode("a\vb")), "ab");
  EXPECT_EQ(t.decode(t.encode("a\xFF")), "a\xEF\xBF\xBD");  // no UTF-8 anyway
  EXPECT_EQ(t.decode(t.encode("a\xFE")), "a\xFE");
}

TEST(SentencePiece, BestScoreFirst) {
  const Tokenizer t(
      piece_vocabulary({{"_", -1}, {"a", -2}, {"b", -3}, {"c", -4}, {"ab", -7}, {"bc", -6}, {"_a", -9}, {"_abc", -5}}));
  EXPECT_EQ(pieces_of(t, t.encode("abc")), (Strings{" abc"}));  // bc, then _a, then both
  EXPECT_EQ(pieces_of(t, t.encode("ab")), (Strings{" ", "ab"}));
  EXPECT_EQ(pieces_of(t, t.encode("")), (Strings{}));
}

TEST(SentencePiece, EqualScoresGoFromTheLeft) {
  const Tokenizer t(piece_vocabulary({{"_", 0}, {"aa", -1}, {"a", -2}}));
  EXPECT_EQ(pieces_of(t, t.encode("aaa")), (Strings{" ", "aa", "a"}));
  const Tokenizer zero(piece_vocabulary({{"_", 0}, {"ab", -0.0F}, {"bc", 0.0F}, {"a", -2}, {"c", -2}}));
  EXPECT_EQ(pieces_of(zero, zero.encode("abc")), (Strings{" ", "ab", "c"}));
}

TEST(SentencePiece, BytesForWhatHasNoToken) {
  const Tokenizer t(piece_vocabulary({{"_", -1}, {"a", -2}}));
  EXPECT_EQ(pieces_of(t, t.encode("a\xC3\xA9")), (Strings{" ", "a", "\xC3", "\xA9"}));
  EXPECT_EQ(t.token(t.encode("\n").back()), "<0x0A>");
  const Tokenizer none(piece_vocabulary({{"_", -1}, {"a", -2}}, false));
  EXPECT_EQ(none.encode("ab"), (std::vector<TokenId>{3, 4, 0}));
  EXPECT_FALSE(none.covers_all_bytes());
}

TEST(SentencePiece, TheMarkInATextIsNoSpace) {
  const Tokenizer t(piece_vocabulary({{"_", -1}, {"_a", -2}, {"a", -3}}));
  const std::string text =
      "\xE2\x96\x81"
      "a a";
  EXPECT_EQ(pieces_of(t, t.encode(text)), (Strings{" ", "\xE2", "\x96", "\x81", "a", " a"}));
  EXPECT_EQ(t.decode(t.encode(text)), text);
}

TEST(SentencePiece, SpacePrefix) {
  Vocabulary v = piece_vocabulary({{"_", -1}, {"_a", -2}, {"a", -3}});
  const Tokenizer with(v);
  EXPECT_EQ(with.encode("a"), with.encode("a", {.parse_special = true}));
  EXPECT_EQ(pieces_of(with, with.encode("a</s>a", {.parse_special = true})), (Strings{" a", "</s>", " a"}));
  EXPECT_EQ(pieces_of(with, with.encode(" a")), (Strings{" ", " a"}));
  v.add_space_prefix = false;
  const Tokenizer without(v);
  EXPECT_EQ(pieces_of(without, without.encode("a a")), (Strings{"a", " a"}));
  EXPECT_EQ(without.decode(without.encode(" a")), " a");
}

TEST(SentencePiece, TypedControlAndByteTokensStayText) {
  const Tokenizer t(piece_vocabulary({{"</", -1}, {"s>", -1}, {"<0", -1}, {"x41", -1}, {"<0x41", -1}}));
  for (const std::string text : {"</s>", "<0x41>"}) {
    for (const TokenId id : t.encode(text)) EXPECT_NE(t.token(id), text);
    EXPECT_EQ(t.decode(t.encode(text)), text);
  }
}

TEST(Tokenizer, AddsWhatTheModelWants) {
  Vocabulary v = bpe_vocabulary("gpt-2", {});
  v.add_bos = v.add_eos = true;
  v.special.bos = add(v, "<begin>", TokenType::control);
  const Tokenizer t(v);
  EXPECT_EQ(t.encode("a", {.add_special = true}), (std::vector<TokenId>{256, 'a'}));  // there is no end token to add
  EXPECT_EQ(t.encode("a"), (std::vector<TokenId>{'a'}));
  EXPECT_EQ(t.encode("", {.add_special = true}), (std::vector<TokenId>{256}));
  EXPECT_TRUE(t.adds_bos());
  EXPECT_FALSE(t.adds_eos());
}

TEST(Tokenizer, RoundTripOfAnyBytes) {
  std::vector<Vocabulary> vocabularies;
  for (const PreTokenizer& pre : pre_tokenizers())
    vocabularies.push_back(bpe_vocabulary(std::string(pre.name), kMerges));
  vocabularies.push_back(piece_vocabulary({{"_", -1}, {"a", -2}, {"_a", -3}, {"__", -4}, {"\xC3\xA9", -5}}));
  vocabularies.push_back(piece_vocabulary({}));  // not even a space
  for (const Vocabulary& v : vocabularies) {
    const Tokenizer t(v);
    EXPECT_TRUE(t.covers_all_bytes());
    for (const std::string& text : awkward_texts()) {
      EXPECT_EQ(t.decode(t.encode(text)), text) << v.pre << " " << printable(text);
      EXPECT_EQ(t.decode(t.encode(text, {.parse_special = true}), {.show_special = true}), text) << printable(text);
    }
  }
}

TEST(Tokenizer, RefusesIdsThatAreNone) {
  const Tokenizer t(bpe_vocabulary("gpt-2", {}));
  for (const TokenId id : {-1, 256, 1 << 30}) {
    EXPECT_THROW(t.decode(std::vector<TokenId>{id}), Error);
    EXPECT_THROW(t.piece(id), Error);
    EXPECT_THROW(t.is_control(id), Error);
    EXPECT_FALSE(t.is_end(id));
  }
}

TEST(Tokenizer, FindsTokens) {
  const Tokenizer t(piece_vocabulary({{"_a", -1}}));
  EXPECT_EQ(t.find("</s>"), 2);
  EXPECT_EQ(t.find("nothing"), std::nullopt);
  EXPECT_EQ(t.special().bos, 1);
  EXPECT_TRUE(t.is_control(0));
  EXPECT_FALSE(t.is_control(3));
  EXPECT_TRUE(t.is_end(2));
  EXPECT_EQ(t.size(), 260);
  Tokenizer moved = Tokenizer(piece_vocabulary({{"_a", -1}}));
  moved = Tokenizer(piece_vocabulary({{"_b", -1}}));
  EXPECT_EQ(pieces_of(moved, moved.encode("b")), (Strings{" b"}));
}

// Merging by scanning for the best pair again and again would take days.
TEST(Tokenizer, LongRunsAreQuick) {
  const Tokenizer bpe(bpe_vocabulary("gpt-2", {"a|a", "aa|aa", "aaaa|aaaa", "!|!", "!!|!!"}));
  const Tokenizer pieces(
      piece_vocabulary({{"_", -1}, {"a", -2}, {"aa", -3}, {"aaaa", -4}, {"!", -5}, {"__", -6}, {"____", -7}}));
  for (const Tokenizer* t : {&bpe, &pieces}) {
    for (const char c : {'a', '!', ' ', '\n'}) {
      const std::string text(1'000'000, c);
      const CpuTimer timer;
      EXPECT_EQ(t->decode(t->encode(text)), text);
      EXPECT_LT(timer.seconds(), 4 * kSlower);
    }
  }
}

}  // namespace
}  // namespace conclave::testing
