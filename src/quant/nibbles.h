// The 4-bit levels of a block of 32, as q4_0, q4_1, q5_0, q5_1, iq4_nl, iq4_xs and mxfp4 store them:
//
//   byte   b7 b6 b5 b4   b3 b2 b1 b0
//   qs[i]  level i + 16  level i            i = 0..15
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace conclave {

inline std::uint8_t get_nibble(std::span<const std::uint8_t, 16> qs, std::size_t i) {
  return i < 16 ? (qs[i] & 0x0FU) : (qs[i - 16] >> 4);
}

// The bytes start as zeros, and every level (below 16) is set once.
inline void set_nibble(std::span<std::uint8_t, 16> qs, std::size_t i, std::uint8_t level) {
  qs[i % 16] = static_cast<std::uint8_t>(qs[i % 16] | (i < 16 ? level : level << 4));
}

}  // namespace conclave
