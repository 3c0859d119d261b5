// The alphabet that byte-level BPE writes its tokens in: one printable character for each byte. Bytes that are printable
// in Latin-1 are themselves; the others, in order, are the characters from U+0100 on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace conclave {

char32_t byte_to_char(unsigned char byte);
std::optional<unsigned char> char_to_byte(char32_t code);

bool in_byte_alphabet(std::string_view token);

// A token as the bytes it stands for. A character outside the alphabet stands for itself.
std::string bytes_of_token(std::string_view token);

}  // namespace conclave
