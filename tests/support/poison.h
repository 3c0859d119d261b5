// What memory holds before an op runs: outputs are poison, so that an element nobody wrote is seen; around every tensor
// lie guard bytes, so that a write beside it is seen.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace conclave::test {

inline constexpr std::uint32_t kPoisonF32 = 0x7FC0DEADU;  // a NaN no arithmetic gives
inline constexpr std::uint32_t kPoisonInt = 0xDEADBEEFU;
inline constexpr std::uint16_t kPoisonF16 = 0x7E5AU;
inline constexpr std::uint16_t kPoisonBf16 = 0x7FDEU;

constexpr std::uint8_t guard_byte(std::int64_t position) {
  return static_cast<std::uint8_t>(0xA5 ^ (position * 29));
}

}  // namespace conclave::test
