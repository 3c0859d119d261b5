#include "text/unicode.h"

#include <gtest/gtest.h>

#include <array>

#include "base/file_text.h"
#include "text/byte_alphabet.h"

namespace conclave {
namespace {

TEST(Unicode, ClassesOfKnownCharacters) {
  EXPECT_EQ(char_class(U'a'), CharClass::letter);
  EXPECT_EQ(char_class(U'7'), CharClass::number);
  EXPECT_EQ(char_class(U'_'), CharClass::punctuation);
  EXPECT_EQ(char_class(U'$'), CharClass::symbol);
  EXPECT_EQ(char_class(U'\v'), CharClass::space);
  EXPECT_EQ(char_class(0x1C), CharClass::other);  // a separator by name, not White_Space
  EXPECT_EQ(char_class(0x85), CharClass::space);
  EXPECT_EQ(char_class(0xA0), CharClass::space);
  EXPECT_EQ(char_class(0xAA), CharClass::letter);
  EXPECT_EQ(char_class(0xBD), CharClass::number);   // one half
  EXPECT_EQ(char_class(0x301), CharClass::mark);    // combining acute
  EXPECT_EQ(char_class(0x663), CharClass::number);  // Arabic-Indic three
  EXPECT_EQ(char_class(0x200B), CharClass::other);  // zero width space
  EXPECT_EQ(char_class(0x3000), CharClass::space);
  EXPECT_EQ(char_class(0x3001), CharClass::punctuation);
  EXPECT_EQ(char_class(0x4E00), CharClass::letter);
  EXPECT_EQ(char_class(0xD7A3), CharClass::letter);
  EXPECT_EQ(char_class(0xD7A4), CharClass::other);  // not assigned
  EXPECT_EQ(char_class(0x1F600), CharClass::symbol);
  EXPECT_EQ(char_class(0x2EBF0), CharClass::letter);  // new in 15.1
  EXPECT_EQ(char_class(0x10FFFF), CharClass::other);
  EXPECT_EQ(char_class(0x110000), CharClass::other);
}

TEST(Unicode, ClassCountsAreThoseOfVersion15_1) {
  std::array<int, 7> counts{};
  for (char32_t code = 0; code < 0x110000; ++code) ++counts[static_cast<std::size_t>(char_class(code))];
  EXPECT_EQ(counts[static_cast<std::size_t>(CharClass::space)], 25);
  EXPECT_EQ(counts[static_cast<std::size_t>(CharClass::letter)], 136726);
  EXPECT_EQ(counts[static_cast<std::size_t>(CharClass::number)], 1831);
  EXPECT_EQ(counts[static_cast<std::size_t>(CharClass::mark)], 2450);
  EXPECT_EQ(counts[static_cast<std::size_t>(CharClass::punctuation)], 842);
  EXPECT_EQ(counts[static_cast<std::size_t>(CharClass::symbol)], 7775);
}

TEST(Unicode, EveryCodeComesBack) {
  std::string text;
  for (char32_t code = 0; code < 0x110000; ++code) {
    text.clear();
    append_utf8(code, text);
    const Utf8Char back = decode_utf8(text, 0);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(back.valid, !surrogate) << std::hex << static_cast<std::uint32_t>(code);
    if (surrogate) continue;
    ASSERT_EQ(back.code, code);
    ASSERT_EQ(back.bytes, text.size());
  }
}

TEST(Unicode, WhatIsNoUtf8IsOneByteEach) {
  for (const std::string bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                                "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xF0\x9F\x98", "\xC3(", "\xFF"}) {
    const Utf8Char c = decode_utf8(bad, 0);
    EXPECT_FALSE(c.valid) << printable(bad);
    EXPECT_EQ(c.code, kReplacement);
    EXPECT_EQ(c.bytes, 1U);
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(Unicode, UnfinishedEnds) {
  EXPECT_EQ(unfinished_utf8(""), 0U);
  EXPECT_EQ(unfinished_utf8("abc"), 0U);
  EXPECT_EQ(unfinished_utf8("\xC3\xA9"), 0U);
  EXPECT_EQ(unfinished_utf8("a\xC3"), 1U);
  EXPECT_EQ(unfinished_utf8("\xE2\x82"), 2U);
  EXPECT_EQ(unfinished_utf8("a\xF0\x9F\x98"), 3U);
  EXPECT_EQ(unfinished_utf8("\xF0\x9F\x98\x80"), 0U);
  EXPECT_EQ(unfinished_utf8("\x80\x80\x80\x80"), 0U);  // nothing they could complete
  EXPECT_EQ(unfinished_utf8("\xFF"), 0U);
  EXPECT_EQ(unfinished_utf8("\xE0\x80"), 0U);      // would be overlong
  EXPECT_EQ(unfinished_utf8("\xF4\x90\x80"), 0U);  // would be past U+10FFFF
}

TEST(Unicode, CharsKeepTheirPlaces) {
  const Chars chars("a\xC3\xA9\xFF\xF0\x9F\x98\x80");
  EXPECT_EQ(chars.code, (std::vector<char32_t>{U'a', 0xE9, kReplacement, 0x1F600}));
  EXPECT_EQ(chars.start, (std::vector<std::uint32_t>{0, 1, 3, 4, 8}));
  EXPECT_EQ(chars.kind[1], CharClass::letter);
}

TEST(ByteAlphabet, EveryByteHasItsOwnCharacter) {
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t c = byte_to_char(static_cast<unsigned char>(byte));
    EXPECT_EQ(char_to_byte(c), static_cast<unsigned char>(byte));
  }
  EXPECT_EQ(byte_to_char(' '), 0x120U);
  EXPECT_EQ(byte_to_char('\n'), 0x10AU);
  EXPECT_EQ(byte_to_char(0xAD), 0x143U);
  EXPECT_EQ(char_to_byte(U' '), std::nullopt);
  EXPECT_EQ(char_to_byte(0x144), std::nullopt);
  EXPECT_EQ(bytes_of_token("\xC4\xA0hi"), " hi");
  EXPECT_EQ(bytes_of_token("\xE4\xBD\xA0"), "\xE4\xBD\xA0");  // outside the alphabet: itself
  EXPECT_FALSE(in_byte_alphabet("a b"));
  EXPECT_TRUE(in_byte_alphabet("\xC4\xA0hi"));
}

}  // namespace
}  // namespace conclave
