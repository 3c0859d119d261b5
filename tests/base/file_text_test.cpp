#include "base/file_text.h"

#include <gtest/gtest.h>

namespace conclave {
namespace {

TEST(FileText, PrintableUtf8) {
  for (const char* good :
       {"", "blk.0.weight", "a b~", "schl\xc3\xbcssel", "\xe4\xb8\xad", "\xf0\x9f\x98\x80", "\xc2\xa0"}) {
    EXPECT_TRUE(is_printable_utf8(good)) << good;
    EXPECT_EQ(printable(good), good);
  }
  for (const std::string_view bad :
       {std::string_view("\0", 1), std::string_view("\n"), std::string_view("\x7f"), std::string_view("\x80"),
        std::string_view("\xc2"), std::string_view("\xc0\xaf"), std::string_view("\xc2\x9b"),
        std::string_view("\xe0\x80\xaf"), std::string_view("\xed\xa0\x80"), std::string_view("\xe2\x80\xae"),
        std::string_view("\xe2\x81\xa6"), std::string_view("\xf0\x80\x80\xaf"), std::string_view("\xf4\x90\x80\x80"),
        std::string_view("\xf5\x80\x80\x80"), std::string_view("\xff"), std::string_view("\xe2\x28\xa1")}) {
    EXPECT_FALSE(is_printable_utf8(bad)) << printable(bad);
    EXPECT_TRUE(is_printable_utf8(printable(bad))) << "escaped: " << printable(bad);
  }
}

TEST(FileText, EscapesAndShortens) {
  EXPECT_EQ(printable("a\nb\xff"), "a\\x0ab\\xff");
  EXPECT_EQ(printable("abcdef", 6), "abcdef");
  EXPECT_EQ(printable("abcdefg", 6), "abcdef...");
  EXPECT_EQ(printable("abc\xc3\xbc", 4), "abc...");  // never half a character
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), kShownNameBytes + 3);
}

}  // namespace
}  // namespace conclave
