// What pre-tokenisers need to know of text: where its characters are, and of which kind each is (Unicode 15.1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace conclave {

// The general category's first letter, but for white space, which is a class of its own (the property White_Space, which
// takes all of Z and a few controls).
enum class CharClass : std::uint8_t {
  other,  // controls, formats, private use, and what is not assigned
  letter,
  number,
  mark,
  punctuation,
  symbol,
  space,
};

CharClass char_class(char32_t code);

inline constexpr char32_t kReplacement = 0xFFFD;

struct Utf8Char {
  char32_t code;        // kReplacement where `valid` is false
  std::uint32_t bytes;  // 1 where `valid` is false
  bool valid;
};

// The character that starts at `position`, which must be below text.size(). Strict: no surrogates, nothing overlong,
// nothing past U+10FFFF. A byte that starts no character is one by itself, and not valid.
Utf8Char decode_utf8(std::string_view text, std::size_t position);
void append_utf8(char32_t code, std::string& out);

// How many bytes at the end of `text` are the beginning of a character that more bytes could complete; 0 to 3.
std::size_t unfinished_utf8(std::string_view text);

// A text taken apart once, so that several scanners can go over it. Bytes that are no UTF-8 count as U+FFFD.
struct Chars {
  explicit Chars(std::string_view text);  // at most 4 GiB

  std::uint32_t size() const { return static_cast<std::uint32_t>(code.size()); }

  std::vector<char32_t> code;
  std::vector<CharClass> kind;
  std::vector<std::uint32_t> start;  // byte position of each; one more entry for the end of the text
};

}  // namespace conclave
