// q3_k: 256 weights in 3 bits each, levels -4..3; 16 groups of 16 with a 6-bit scale (-32..31) each.
//
//   byte  0                      32                   96                      108     110
//         | hmask[32]: bit 2     | qs[64]: bits 1, 0  | scales[12]: 16 x 6 b  | d f16 |
//
//   hmask       bit i / 32 of byte i % 32: set means "do not subtract 4"
//   qs          bits 2s, 2s + 1 of byte 32 * (i / 128) + i % 32, with s = (i / 32) % 4
//   scales      group g = i / 16
//                 byte g % 8,      bits 4(g / 8) and up (4 of them):  bits 3..0 of the stored scale
//                 byte 8 + g % 4,  bits 2(g / 4) and up (2 of them):  bits 5, 4
//
//   x[i] = (d * (stored(g) - 32)) * level(i)          f32, rounded after each multiplication
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockQ3_K {
  static constexpr std::size_t kValues = 256;
  std::array<std::uint8_t, 32> hmask;
  std::array<std::uint8_t, 64> qs;
  std::array<std::uint8_t, 12> scales;
  std::uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

void decode(const BlockQ3_K& block, std::span<float, 256> out);

}  // namespace conclave
