// Names that came out of a file or off a command line, made fit to be shown: one line, no control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace conclave {

bool is_utf8(std::string_view bytes);

// Valid UTF-8 without control characters and without the characters that break or reorder a line.
bool is_printable_utf8(std::string_view bytes);

inline constexpr std::size_t kShownNameBytes = 64;

// `bytes` with whatever is_printable_utf8 would refuse written as \xNN; "..." stands for what is past `max_bytes`.
std::string printable(std::string_view bytes, std::size_t max_bytes = kShownNameBytes);

}  // namespace conclave
