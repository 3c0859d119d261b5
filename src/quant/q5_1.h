// q5_1: 32 weights in 5 bits each under one scale and one offset.
//
//   byte  0       2       4                        8                            24
//         | d f16 | m f16 | qh[4]: the fifth bits  | qs[16]: the low four bits  |      (nibbles.h)
//
//   qh    byte i / 8, bit i % 8 is bit 4 of level i
//
//   x[i] = d * level(i) + m                              f32, the product rounded before the sum
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockQ5_1 {
  static constexpr std::size_t kValues = 32;
  std::uint16_t d;
  std::uint16_t m;
  std::array<std::uint8_t, 4> qh;
  std::array<std::uint8_t, 16> qs;
};
static_assert(sizeof(BlockQ5_1) == 24);

void decode(const BlockQ5_1& block, std::span<float, 32> out);

}  // namespace conclave
