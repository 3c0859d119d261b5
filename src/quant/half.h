// f16 and bf16 to f32 and back, in plain integer arithmetic: the same bits on every machine.
//
//   f16    s eeeee mmmmmmmmmm          1 + 5 + 10 bits, bias 15
//   bf16   s eeeeeeee mmmmmmm          1 + 8 + 7 bits: the upper half of an f32
//
// Rounding is to nearest, ties to even. A NaN stays a NaN (quiet, sign and upper payload kept); f16 overflows to
// infinity.
#pragma once

#include <bit>
#include <cstdint>

namespace conclave {

constexpr float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13) | (mantissa ? 0x400000U : 0U));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;  // zero or subnormal: exact
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

constexpr std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // NaN
    return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x1FFU));
  }
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // 65520 and more
  if (magnitude < 0x38800000U) {                                                    // below 2^-14: subnormal or zero
    if (magnitude < 0x33000000U) return static_cast<std::uint16_t>(sign);           // below 2^-25
    const std::uint32_t shift = 126U - (magnitude >> 23);                           // 14 .. 24
    const std::uint32_t full = (magnitude & 0x7FFFFFU) | 0x800000U;
    const std::uint32_t kept = full >> shift;
    const std::uint32_t rest = full & ((1U << shift) - 1U);
    const std::uint32_t half = 1U << (shift - 1U);
    const bool up = rest > half || (rest == half && (kept & 1U));
    return static_cast<std::uint16_t>(sign | (kept + (up ? 1U : 0U)));
  }
  const std::uint32_t rebased = magnitude - (112U << 23);
  const std::uint32_t rounded = rebased + 0xFFFU + ((rebased >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

constexpr float bf16_to_f32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

constexpr std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace conclave
