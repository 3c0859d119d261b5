#include "text/byte_alphabet.h"

#include <array>

#include "text/unicode.h"

namespace conclave {
namespace {

constexpr char32_t kFirstSubstitute = 0x100;

constexpr bool is_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kCharOfByte = [] {
  std::array<char32_t, 256> chars{};
  char32_t next = kFirstSubstitute;
  for (unsigned byte = 0; byte < 256; ++byte) chars[byte] = is_itself(byte) ? byte : next++;
  return chars;
}();

// Of the substitutes, in order.
constexpr auto kSubstituted = [] {
  std::array<unsigned char, 68> bytes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (!is_itself(byte)) bytes[kCharOfByte[byte] - kFirstSubstitute] = static_cast<unsigned char>(byte);
  }
  return bytes;
}();

}  // namespace

char32_t byte_to_char(unsigned char byte) {
  return kCharOfByte[byte];
}

std::optional<unsigned char> char_to_byte(char32_t code) {
  if (code < 256) return is_itself(code) ? std::optional(static_cast<unsigned char>(code)) : std::nullopt;
  if (code - kFirstSubstitute < kSubstituted.size()) return kSubstituted[code - kFirstSubstitute];
  return std::nullopt;
}

bool in_byte_alphabet(std::string_view token) {
  for (std::size_t position = 0; position < token.size();) {
    const Utf8Char next = decode_utf8(token, position);
    if (!next.valid || !char_to_byte(next.code)) return false;
    position += next.bytes;
  }
  return true;
}

std::string bytes_of_token(std::string_view token) {
  std::string bytes;
  for (std::size_t position = 0; position < token.size();) {
    const Utf8Char next = decode_utf8(token, position);
    if (const auto byte = next.valid ? char_to_byte(next.code) : std::nullopt) {
      bytes.push_back(static_cast<char>(*byte));
    } else {
      bytes.append(token.substr(position, next.bytes));
    }
    position += next.bytes;
  }
  return bytes;
}

}  // namespace conclave
