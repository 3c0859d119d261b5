// iq4_xs: 256 weights in 4 bits each that index a table of 16 uneven levels (iq4_levels.h); 8 groups of 32 with a
// 6-bit scale (-32..31) each.
//
//   byte  0       2                         4                            8                            136
//         | d f16 | scales_h u16: bits 5, 4 | scales_l[4]: bits 3..0     | qs[8][16]: a group's two   |
//         |       | group g at bits 2g up   | group g: byte g / 2,       | indices each (nibbles.h)   |
//         |       |                         | low nibble where g is even |                            |
//
//   x[i] = (d * (stored(g) - 32)) * kIq4Levels[index(i)],  g = i / 32       f32, rounded after each multiplication
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockIq4_XS {
  static constexpr std::size_t kValues = 256;
  std::uint16_t d;
  std::uint16_t scales_h;
  std::array<std::uint8_t, 4> scales_l;
  std::array<std::array<std::uint8_t, 16>, 8> qs;
};
static_assert(sizeof(BlockIq4_XS) == 136);

void decode(const BlockIq4_XS& block, std::span<float, 256> out);

}  // namespace conclave
