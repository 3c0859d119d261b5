// UTF-8, one character at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace conclave {

struct Utf8Character {
  std::size_t length = 0;  // in bytes; 0 where it is malformed
  std::uint32_t code = 0;
};

// The character at the front of `bytes`, which is not empty.
Utf8Character first_character(std::string_view bytes);

}  // namespace conclave
