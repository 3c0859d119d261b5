// q8_0: 32 weights in 8 bits each under one scale.
//
//   byte  0       2                34
//         | d f16 | qs[32]: int8   |
//
//   x[i] = qs[i] * d                                one f32 multiplication
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockQ8_0 {
  static constexpr std::size_t kValues = 32;
  std::uint16_t d;
  std::array<std::int8_t, 32> qs;
};
static_assert(sizeof(BlockQ8_0) == 34);

void decode(const BlockQ8_0& block, std::span<float, 32> out);

// Levels stay in -127..127: int8 products may negate them.
void encode(std::span<const float, 32> values, BlockQ8_0& block);

}  // namespace conclave
