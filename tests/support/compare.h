// The comparator: what came out against what should have, element by element.
//
// Elements are 32 bits as dense_bits() gives them. Integers must be equal. An expected poison must still be there: the
// op was to leave that element alone. An expected NaN must be a NaN, an expected infinity the same infinity; where one
// is a number too large for its type, it counts as the least such number. Everything else must lie within its own
// derived bound. On top of that the normalised mean squared error has a ceiling, which nothing but the noise of rounded
// activations may pass, and that no further than noise goes.
#pragma once

#include <cmath>
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

// What the rounding of activations is expected to do to one element.
struct Noise {
  double variance = 0;   // derived, an upper estimate
  std::int64_t row = 0;  // of the activations: elements with the same one share its rounding errors
};

struct FloatLimits {
  std::span<const double> bound;      // one per element
  double nmse = 1e-6;                 // ceiling on sum (got - expected)^2 / sum expected^2
  std::span<const Noise> noise = {};  // one per element; empty: none
  double overflow = INFINITY;         // a number of this size or more is stored as an infinity
};

Comparison compare_ints(std::span<const std::uint32_t> got, std::span<const std::uint32_t> expected);
Comparison compare_floats(std::span<const std::uint32_t> got, std::span<const std::uint32_t> expected,
                          const FloatLimits& limits);

}  // namespace conclave::test
