// q4_1: 32 weights in 4 bits each under one scale and one offset.
//
//   byte  0       2       4                          20
//         | d f16 | m f16 | qs[16]: two levels each  |      (nibbles.h)
//
//   x[i] = d * level(i) + m                                 f32, the product rounded before the sum
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockQ4_1 {
  static constexpr std::size_t kValues = 32;
  std::uint16_t d;
  std::uint16_t m;
  std::array<std::uint8_t, 16> qs;
};
static_assert(sizeof(BlockQ4_1) == 20);

void decode(const BlockQ4_1& block, std::span<float, 32> out);

}  // namespace conclave
