// q2_k: 256 weights in 2 bits each; 16 groups of 16 with a 4-bit scale and a 4-bit minimum each.
//
//   byte  0                              16                   80      82         84
//         | scales[16]: min 4 | scale 4  | qs[64]: 2-bit x 4  | d f16 | dmin f16 |
//
//   scales[g]   b7..b4 minimum of group g = i / 16, b3..b0 its scale
//   qs          level i is bits 2s, 2s + 1 of byte 32 * (i / 128) + i % 32, with s = (i / 32) % 4
//
//   x[i] = (d * scale(g)) * level(i) - dmin * min(g)          f32, rounded after each operation
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockQ2_K {
  static constexpr std::size_t kValues = 256;
  std::array<std::uint8_t, 16> scales;
  std::array<std::uint8_t, 64> qs;
  std::uint16_t d;
  std::uint16_t dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

void decode(const BlockQ2_K& block, std::span<float, 256> out);

}  // namespace conclave
