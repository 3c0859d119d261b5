// Floats as unsigned numbers in the same order: -0 and +0 are one. Of a NaN the number means nothing.
#pragma once

#include <bit>
#include <cstdint>

namespace conclave {

constexpr std::uint32_t ascending_bits(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x + 0.0F);  // -0 becomes +0
  return bits >> 31 != 0 ? ~bits : bits | 0x80000000U;
}
constexpr float from_ascending_bits(std::uint32_t ascending) {
  return std::bit_cast<float>(ascending >> 31 != 0 ? ascending ^ 0x80000000U : ~ascending);
}
static_assert(ascending_bits(-2.0F) < ascending_bits(-1.0F) && ascending_bits(-0.0F) == ascending_bits(0.0F));
static_assert(ascending_bits(-1e-45F) < ascending_bits(0.0F) && ascending_bits(1.0F) < ascending_bits(2.0F));
static_assert(from_ascending_bits(ascending_bits(-1.5F)) == -1.5F && from_ascending_bits(ascending_bits(3.0F)) == 3.0F);

}  // namespace conclave
