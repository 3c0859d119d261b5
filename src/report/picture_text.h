// Text in a picture: the built-in font at twice its size, smoothed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "report/png.h"

namespace conclave {

inline constexpr int kTextAdvance = 12;  // from one character to the next
inline constexpr int kTextHeight = 14;   // of a capital letter or digit
inline constexpr int kInkLevels = 5;

// Places in the palette from the background (0) to full ink.
using Ink = std::array<std::uint8_t, kInkLevels>;

// `y` is the top of capital letters.
void draw_text(Picture& picture, int x, int y, std::string_view ascii, const Ink& ink);

inline int text_pixels(std::string_view ascii) {
  return static_cast<int>(ascii.size()) * kTextAdvance - 2;
}

}  // namespace conclave
