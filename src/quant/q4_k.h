// q4_k: 256 weights in 4 bits each; 8 groups of 32 with a 6-bit scale and a 6-bit minimum each.
//
//   byte  0       2          4                           16                  144
//         | d f16 | dmin f16 | scales[12] (k_scales.h)   | qs[128]: 4-bit x2 |
//
//   qs    byte 32c + l:   b7..b4 level of weight 64c + 32 + l,   b3..b0 level of weight 64c + l      c = 0..3,
//                                                                                             l = 0..31
//
//   x[i] = (d * scale(g)) * level(i) - dmin * min(g),  g = i / 32         f32, rounded after each operation
//
// d and dmin are signed like any f16: encode() writes a negative dmin where all groups lie above zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/k_scales.h"

namespace conclave {

struct BlockQ4_K {
  static constexpr std::size_t kValues = 256;
  std::uint16_t d;
  std::uint16_t dmin;
  PackedKScales scales;
  std::array<std::uint8_t, 128> qs;
};
static_assert(sizeof(BlockQ4_K) == 144);

void decode(const BlockQ4_K& block, std::span<float, 256> out);
void encode(std::span<const float, 256> values, BlockQ4_K& block);

}  // namespace conclave
