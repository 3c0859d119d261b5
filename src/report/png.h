// Pictures with a palette, and PNG files of them. Each row is stored as its difference to the row above and compressed by
// runs in a deflate block with the fixed codes: heat maps are made of runs and of equal rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/colour_ramp.h"

namespace conclave {

struct Picture {
  static constexpr int kMaxSide = 1 << 15;

  Picture(int columns, int rows, std::uint8_t background);

  // What lies outside is not drawn.
  void fill(int x, int y, int columns, int rows, std::uint8_t colour);

  int width;
  int height;
  std::vector<Rgb> palette;          // at most 256
  std::vector<std::uint8_t> pixels;  // [height][width], places in the palette
};

std::string png_of(const Picture& picture);

}  // namespace conclave
