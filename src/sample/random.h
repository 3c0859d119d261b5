// The generator behind sampling: splitmix64 by counter. The i-th number is a function of the seed and i alone, so the
// same seed gives the same numbers on every machine, and a copy of the generator continues where the original stood.
#pragma once

#include <cstdint>

namespace conclave {

class Random {
 public:
  // The seed is mixed first: otherwise nearby seeds would give one sequence, shifted.
  explicit Random(std::uint64_t seed) : state_(mix(seed + kStep)) {}

  std::uint64_t bits() {
    state_ += kStep;
    return mix(state_);
  }

  // 0 <= result < 1: one of the 2^53 multiples of 2^-53, each as likely as any other.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio

  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace conclave
