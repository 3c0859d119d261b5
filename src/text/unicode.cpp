#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "text/unicode_table.h"

namespace conclave {
namespace {

constexpr char32_t kCodes = 0x110000;
constexpr unsigned kPageBits = 8;
constexpr std::size_t kPages = kCodes >> kPageBits;

// For each page of 256 code points, the index of the stretch that holds its first one.
constexpr auto kPageStretch = [] {
  std::array<std::uint16_t, kPages + 1> first{};
  std::size_t stretch = 0;
  for (std::size_t page = 0; page < kPages; ++page) {
    while (stretch + 1 < std::size(kUnicodeTable) && (kUnicodeTable[stretch + 1] >> 8) <= (page << kPageBits))
      ++stretch;
    first[page] = static_cast<std::uint16_t>(stretch);
  }
  first[kPages] = static_cast<std::uint16_t>(std::size(kUnicodeTable) - 1);
  return first;
}();

constexpr auto kAsciiClass = [] {
  std::array<CharClass, 128> classes{};
  std::size_t stretch = 0;
  for (std::uint32_t code = 0; code < classes.size(); ++code) {
    while ((kUnicodeTable[stretch + 1] >> 8) <= code) ++stretch;
    classes[code] = static_cast<CharClass>(kUnicodeTable[stretch] & 0xFF);
  }
  return classes;
}();

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// How many bytes a character has that starts with this one; 0 where none does.
std::uint32_t utf8_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // a continuation, or overlong
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// Whether `second` may follow `lead`: what keeps out overlong forms, surrogates and codes past U+10FFFF.
bool second_byte_fits(unsigned char lead, unsigned char second) {
  if ((second & 0xC0) != 0x80) return false;
  switch (lead) {
    case 0xE0:
      return second >= 0xA0;
    case 0xED:
      return second < 0xA0;
    case 0xF0:
      return second >= 0x90;
    case 0xF4:
      return second < 0x90;
    default:
      return true;
  }
}

}  // namespace

CharClass char_class(char32_t code) {
  if (code < 128) return kAsciiClass[code];
  if (code >= kCodes) return CharClass::other;
  const std::size_t page = code >> kPageBits;
  const std::uint32_t* first = kUnicodeTable + kPageStretch[page];
  const std::uint32_t* last = kUnicodeTable + kPageStretch[page + 1] + 1;
  const std::uint32_t* after =
      std::upper_bound(first, last, code, [](char32_t c, std::uint32_t entry) { return c < (entry >> 8); });
  return static_cast<CharClass>(*(after - 1) & 0xFF);
}

Utf8Char decode_utf8(std::string_view text, std::size_t position) {
  constexpr Utf8Char kInvalid{kReplacement, 1, false};
  const auto lead = static_cast<unsigned char>(text[position]);
  const std::uint32_t bytes = utf8_length(lead);
  if (bytes == 1) return {lead, 1, true};
  if (bytes == 0 || bytes > text.size() - position) return kInvalid;
  if (!second_byte_fits(lead, static_cast<unsigned char>(text[position + 1]))) return kInvalid;
  char32_t code = lead & (0x7FU >> bytes);
  for (std::uint32_t i = 1; i < bytes; ++i) {
    const char next = text[position + i];
    if (!is_continuation(next)) return kInvalid;
    code = code << 6 | (static_cast<unsigned char>(next) & 0x3FU);
  }
  return {code, bytes, true};
}

void append_utf8(char32_t code, std::string& out) {
  const auto put = [&out](char32_t bits) { out.push_back(static_cast<char>(bits)); };
  if (code < 0x80) {
    put(code);
    return;
  }
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

std::size_t unfinished_utf8(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const std::size_t position = text.size() - back;
    if (is_continuation(text[position])) continue;
    const auto lead = static_cast<unsigned char>(text[position]);
    if (utf8_length(lead) <= back) return 0;
    if (back > 1 && !second_byte_fits(lead, static_cast<unsigned char>(text[position + 1]))) return 0;
    return back;
  }
  return 0;
}

Chars::Chars(std::string_view text) {
  code.reserve(text.size());
  kind.reserve(text.size());
  start.reserve(text.size() + 1);
  for (std::size_t position = 0; position < text.size();) {
    const Utf8Char next = decode_utf8(text, position);
    code.push_back(next.code);
    kind.push_back(char_class(next.code));
    start.push_back(static_cast<std::uint32_t>(position));
    position += next.bytes;
  }
  start.push_back(static_cast<std::uint32_t>(text.size()));
}

}  // namespace conclave
