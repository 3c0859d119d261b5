#include "report/picture_text.h"

#include "report/bitmap_font.h"

namespace conclave {
namespace {

template <int kColumns, int kRows>
struct Bitmap {
  std::array<std::array<bool, kColumns>, kRows> on{};

  bool& dot(int x, int y) { return on[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)]; }
  bool at(int x, int y) const {
    if (x < 0 || y < 0 || x >= kColumns || y >= kRows) return false;
    return on[static_cast<std::size_t>(y)][static_cast<std::size_t>(x)];
  }
};

// Twice as large with stairs rounded: a quarter takes the colour of its two outer neighbours where they agree and the
// opposite ones do not.
template <int kColumns, int kRows>
Bitmap<2 * kColumns, 2 * kRows> doubled(const Bitmap<kColumns, kRows>& from) {
  Bitmap<2 * kColumns, 2 * kRows> to;
  for (int y = 0; y < 2 * kRows; ++y) {
    for (int x = 0; x < 2 * kColumns; ++x) {
      const int cx = x / 2;
      const int cy = y / 2;
      const int dx = x % 2 == 0 ? -1 : 1;
      const int dy = y % 2 == 0 ? -1 : 1;
      const bool side = from.at(cx + dx, cy);
      const bool end = from.at(cx, cy + dy);
      const bool corner = side == end && side != from.at(cx - dx, cy) && end != from.at(cx, cy - dy);
      to.dot(x, y) = corner ? side : from.at(cx, cy);
    }
  }
  return to;
}

void draw_glyph(Picture& picture, int left, int top, char c, const Ink& ink) {
  Bitmap<kGlyphColumns, kGlyphRows> small;
  for (int y = 0; y < kGlyphRows; ++y) {
    for (int x = 0; x < kGlyphColumns; ++x) {
      const int bit = glyph(c)[static_cast<std::size_t>(y)] >> (kGlyphColumns - 1 - x) & 1;
      small.dot(x, y) = bit != 0;
    }
  }
  const auto large = doubled(doubled(small));  // four times; two by two of these are one pixel
  for (int y = 0; y < 2 * kGlyphRows; ++y) {
    for (int x = 0; x < 2 * kGlyphColumns; ++x) {
      const int level = large.at(2 * x, 2 * y) + large.at(2 * x + 1, 2 * y) + large.at(2 * x, 2 * y + 1) +
                        large.at(2 * x + 1, 2 * y + 1);
      if (level > 0) picture.fill(left + x, top + y, 1, 1, ink[static_cast<std::size_t>(level)]);
    }
  }
}

}  // namespace

void draw_text(Picture& picture, int x, int y, std::string_view ascii, const Ink& ink) {
  for (const char c : ascii) {
    draw_glyph(picture, x, y, c, ink);
    x += kTextAdvance;
  }
}

}  // namespace conclave
