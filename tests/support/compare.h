// The comparator: what came out against what should have, element by element.
//
// Elements are 32 bits as dense_bits() gives them. Integers must be equal. An expected poison must still be there: the
// op was to leave that element alone. An expected NaN must be a NaN, an expected infinity the same infinity; everything
// else must lie within its own derived bound. On top of that the normalised mean squared error has a ceiling.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace conclave::test {

struct Comparison {
  bool ok = true;
  double worst = 0;     // the error of the element that came closest to its bound, or passed it furthest
  double bound = 0;     // that element's bound; where no element is off at all, the tightest one
  std::string message;  // of the first bad element

  // Keeps the worse of the two.
  void include(const Comparison& other);
};

struct FloatLimits {
  std::span<const double> bound;  // one per element
  double nmse = 1e-6;             // ceiling on sum (got - expected)^2 / sum expected^2
};

Comparison compare_ints(std::span<const std::uint32_t> got, std::span<const std::uint32_t> expected);
Comparison compare_floats(std::span<const std::uint32_t> got, std::span<const std::uint32_t> expected,
                          const FloatLimits& limits);

}  // namespace conclave::test
