// q6_k: 256 weights in 6 bits each, levels -32..31; 16 groups of 16 with an int8 scale each.
//
//   byte  0                      128                   192                 208     210
//         | ql[128]: low 4 bits  | qh[64]: high 2 bits | scales[16]: int8  | d f16 |
//
//   ql    weight i: byte 64h + i % 64, low nibble where i % 128 < 64, else high nibble       h = i / 128
//   qh    weight i: byte 32h + i % 32, bits 2s, 2s + 1 with s = (i / 32) % 4
//
//   x[i] = (d * scales[i / 16]) * (level(i) - 32)          f32, rounded after each multiplication
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

struct BlockQ6_K {
  static constexpr std::size_t kValues = 256;
  std::array<std::uint8_t, 128> ql;
  std::array<std::uint8_t, 64> qh;
  std::array<std::int8_t, 16> scales;
  std::uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

void decode(const BlockQ6_K& block, std::span<float, 256> out);
void encode(std::span<const float, 256> values, BlockQ6_K& block);

}  // namespace conclave
