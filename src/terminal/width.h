// How many columns of a terminal text takes. The C library's wcwidth asks the locale; this does not.
#pragma once

#include <cstdint>
#include <string_view>

namespace conclave {

// 0 for what joins the character before it, 2 for East Asian wide characters and emoji, else 1. Control characters have
// no width of their own: 1 is what a replacement for them takes.
int column_width(std::uint32_t code);

// Malformed bytes count 1 each.
int text_width(std::string_view text);

}  // namespace conclave
