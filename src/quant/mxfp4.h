// mxfp4: 32 weights as 4-bit floats (e2m1) under one shared power of two (e8m0).
//
//   byte  0         1                          17
//         | e u8    | qs[16]: two codes each   |      (nibbles.h)
//
//   code  s e e m: 0 0.5 1 1.5 2 3 4 6, and their negatives; code 8 (minus zero) decodes to plus zero
//
//   x[i] = 2^(e - 128) * (2 * value(code(i)))         exact, or infinity where it passes the largest f32
//
// The half of the scale, 2^(e - 128), times the doubled value: both are exact in f32 for all 256 exponents (e = 0 and 1
// give subnormals), and the doubled values are integers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockMxfp4 {
  static constexpr std::size_t kValues = 32;
  std::uint8_t e;
  std::array<std::uint8_t, 16> qs;
};
static_assert(sizeof(BlockMxfp4) == 17);

void decode(const BlockMxfp4& block, std::span<float, 32> out);
void encode(std::span<const float, 32> values, BlockMxfp4& block);

}  // namespace conclave
