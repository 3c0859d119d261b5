#include "text/text_stream.h"

#include <gtest/gtest.h>

#include "base/file_text.h"
#include "vocabulary_fixture.h"

namespace conclave::testing {
namespace {

Strings streamed(const Tokenizer& t, const std::vector<TokenId>& ids, DecodeOptions options = {}) {
  TextStream stream(t, options);
  Strings out;
  for (const TokenId id : ids) out.push_back(stream.push(id));
  out.push_back(stream.finish());
  return out;
}

std::string joined(const Strings& parts) {
  std::string text;
  for (const std::string& part : parts) text += part;
  return text;
}

TEST(TextStream, WholeCharactersOnly) {
  const Tokenizer t(bpe_vocabulary("gpt-2", {}));
  EXPECT_EQ(streamed(t, t.encode("a\xF0\x9F\x98\x80"
                                 "b")),
            (Strings{"a", "", "", "", "\xF0\x9F\x98\x80", "b", ""}));
  EXPECT_EQ(streamed(t, t.encode("\xC3\xA9")), (Strings{"", "\xC3\xA9", ""}));
}

TEST(TextStream, WhatCannotBecomeACharacterIsNotHeld) {
  const Tokenizer t(bpe_vocabulary("gpt-2", {}));
  EXPECT_EQ(streamed(t, {0xFF, 'a'}), (Strings{"\xFF", "a", ""}));
  EXPECT_EQ(streamed(t, {0xE2, 'a'}), (Strings{"",
                                               "\xE2"
                                               "a",
                                               ""}));
  EXPECT_EQ(streamed(t, {0xE2, 0x82}), (Strings{"", "", "\xE2\x82"}));  // cut short: given out at the end
}

TEST(TextStream, SameBytesAsDecode) {
  const Tokenizer bpe(bpe_vocabulary("qwen2", {"h|e", " |he"}));
  const Tokenizer pieces(piece_vocabulary({{"_", -1}, {"a", -2}, {"_a", -3}}));
  for (const Tokenizer* t : {&bpe, &pieces}) {
    for (const std::string& text : awkward_texts()) {
      const Strings parts = streamed(*t, t->encode(text));
      EXPECT_EQ(joined(parts), text);
      if (!is_utf8(text)) continue;
      for (const std::string& part : parts) EXPECT_TRUE(is_utf8(part)) << printable(text);
    }
  }
}

TEST(TextStream, ContinuedTextKeepsItsSpace) {
  const Tokenizer t(piece_vocabulary({{"_", -1}, {"a", -2}, {"_a", -3}}));
  const std::vector<TokenId> ids = t.encode("a a");
  EXPECT_EQ(joined(streamed(t, ids)), "a a");
  EXPECT_EQ(joined(streamed(t, ids, {.continues = true})), " a a");
  std::vector<TokenId> with_begin = {1};
  with_begin.insert(with_begin.end(), ids.begin(), ids.end());
  EXPECT_EQ(joined(streamed(t, with_begin)), "a a");
  EXPECT_EQ(joined(streamed(t, with_begin, {.show_special = true})), "<s>a a");
}

}  // namespace
}  // namespace conclave::testing
