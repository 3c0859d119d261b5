#include "base/file_text.h"

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"

namespace conclave {
namespace {

bool may_be_shown(std::uint32_t code) {
  if (code < 0x20 || (code >= 0x7F && code < 0xA0)) return false;  // C1: U+009B starts a terminal's escape sequence
  if (code >= 0x2028 && code <= 0x202E) return false;              // line separators, direction overrides
  return code < 0x2066 || code > 0x2069;                           // direction isolates
}

// Bytes of the character at the front of `bytes` (not empty); 0 where it is malformed or must not be shown.
std::size_t printable_prefix(std::string_view bytes) {
  const Utf8Character first = first_character(bytes);
  return may_be_shown(first.code) ? first.length : 0;
}

template <class Prefix>
bool made_of(std::string_view bytes, Prefix&& prefix) {
  while (!bytes.empty()) {
    const std::size_t length = prefix(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  return made_of(bytes, [](std::string_view rest) { return first_character(rest).length; });
}

bool is_printable_utf8(std::string_view bytes) {
  return made_of(bytes, printable_prefix);
}

std::string printable(std::string_view bytes, std::size_t max_bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  const std::string_view all = bytes;
  while (!bytes.empty()) {
    const std::size_t length = printable_prefix(bytes);
    if (all.size() - bytes.size() + std::max<std::size_t>(length, 1) > max_bytes) return text + "...";
    if (length > 0) {
      text += bytes.substr(0, length);
      bytes.remove_prefix(length);
    } else {
      const auto byte = static_cast<unsigned char>(bytes[0]);
      text += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      bytes.remove_prefix(1);
    }
  }
  return text;
}

}  // namespace conclave
