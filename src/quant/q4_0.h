// q4_0: 32 weights in 4 bits each under one scale, levels -8..7.
//
//   byte  0      2                          18
//         | d f16 | qs[16]: two levels each  |      (nibbles.h)
//
//   x[i] = d * (level(i) - 8)                       one f32 multiplication
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockQ4_0 {
  static constexpr std::size_t kValues = 32;
  std::uint16_t d;
  std::array<std::uint8_t, 16> qs;
};
static_assert(sizeof(BlockQ4_0) == 18);

void decode(const BlockQ4_0& block, std::span<float, 32> out);
void encode(std::span<const float, 32> values, BlockQ4_0& block);

}  // namespace conclave
