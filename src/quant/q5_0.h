// q5_0: 32 weights in 5 bits each under one scale, levels -16..15.
//
//   byte  0       2                        6                            22
//         | d f16 | qh[4]: the fifth bits  | qs[16]: the low four bits  |      (nibbles.h)
//
//   qh    byte i / 8, bit i % 8 is bit 4 of level i
//
//   x[i] = d * (level(i) - 16)                                                 one f32 multiplication
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockQ5_0 {
  static constexpr std::size_t kValues = 32;
  std::uint16_t d;
  std::array<std::uint8_t, 4> qh;
  std::array<std::uint8_t, 16> qs;
};
static_assert(sizeof(BlockQ5_0) == 22);

void decode(const BlockQ5_0& block, std::span<float, 32> out);
void encode(std::span<const float, 32> values, BlockQ5_0& block);

}  // namespace conclave
