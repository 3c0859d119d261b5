// iq4_nl: 32 weights in 4 bits each that index a table of 16 uneven levels (iq4_levels.h), under one scale.
//
//   byte  0       2                           18
//         | d f16 | qs[16]: two indices each  |      (nibbles.h)
//
//   x[i] = d * kIq4Levels[index(i)]                  one f32 multiplication
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockIq4_NL {
  static constexpr std::size_t kValues = 32;
  std::uint16_t d;
  std::array<std::uint8_t, 16> qs;
};
static_assert(sizeof(BlockIq4_NL) == 18);

void decode(const BlockIq4_NL& block, std::span<float, 32> out);

}  // namespace conclave
