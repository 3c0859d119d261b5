// The 12 bytes in which q4_k and q5_k keep a 6-bit scale S[g] and a 6-bit minimum M[g] for each of 8 groups:
//
//   byte       b7 b6            b5 .. b0
//   0 + g      S[g + 4] b5 b4   S[g]              g = 0..3
//   4 + g      M[g + 4] b5 b4   M[g]
//
//   byte       b7 .. b4         b3 .. b0
//   8 + g      M[g + 4] b3..b0  S[g + 4] b3..b0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace conclave {

struct KScales {
  std::array<std::uint8_t, 8> scale;  // each below 64
  std::array<std::uint8_t, 8> min;
};
using PackedKScales = std::array<std::uint8_t, 12>;

inline KScales unpack(const PackedKScales& packed) {
  KScales out{};
  for (std::size_t g = 0; g < 4; ++g) {
    out.scale[g] = packed[g] & 0x3F;
    out.min[g] = packed[g + 4] & 0x3F;
    out.scale[g + 4] = static_cast<std::uint8_t>((packed[g + 8] & 0x0F) | ((packed[g] >> 6) << 4));
    out.min[g + 4] = static_cast<std::uint8_t>((packed[g + 8] >> 4) | ((packed[g + 4] >> 6) << 4));
  }
  return out;
}

inline PackedKScales pack(const KScales& in) {
  PackedKScales out{};
  for (std::size_t g = 0; g < 4; ++g) {
    out[g] = static_cast<std::uint8_t>(in.scale[g] | ((in.scale[g + 4] >> 4) << 6));
    out[g + 4] = static_cast<std::uint8_t>(in.min[g] | ((in.min[g + 4] >> 4) << 6));
    out[g + 8] = static_cast<std::uint8_t>((in.scale[g + 4] & 0x0F) | ((in.min[g + 4] & 0x0F) << 4));
  }
  return out;
}

}  // namespace conclave
