// A font of our own for labels in pictures: the printable ASCII characters, 5 by 7 pixels with two rows below the line.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace conclave {

inline constexpr int kGlyphColumns = 5;
inline constexpr int kGlyphRows = 9;
inline constexpr int kGlyphBaseline = 7;  // rows above the line

// A question mark for what is not in it.
const std::array<std::uint8_t, kGlyphRows>& glyph(char c);

}  // namespace conclave
