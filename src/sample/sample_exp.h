// exp for sampling weights: additions and multiplications of doubles in a fixed order, which IEEE rounds the same way
// everywhere. std::exp differs between C libraries in the last bit, and a bit can be a different token.
#pragma once

#include <bit>
#include <cstdint>

namespace conclave {

// exp(x) for x <= 0, within 2 ulp; 0 below -708, where subnormals would begin. NaN gives 0.
inline double sample_exp(double x) {
  if (!(x >= -708.0)) return 0.0;
  const auto n = static_cast<std::int32_t>(x * 1.4426950408889634 - 0.5);  // towards 0: the nearest integer
  const double k = n;
  double r = x - k * 0x1.62e42feep-1;  // ln 2, upper 32 bits: the product is exact
  r -= k * 0x1.a39ef35793c76p-33;      // ln 2, the rest
  double p = 1.0 / 6227020800.0;       // the series of exp to r^13; |r| <= 0.35
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const std::uint64_t exponent = static_cast<std::uint32_t>(n + 1023);  // 2 .. 1023
  return p * std::bit_cast<double>(exponent << 52);
}

}  // namespace conclave
