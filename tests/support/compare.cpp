#include "support/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "support/poison.h"

namespace conclave::test {
namespace {

double as_double(std::uint32_t bits) {
  return static_cast<double>(std::bit_cast<float>(bits));
}

double ratio(double error, double bound) {
  if (error == 0) return 0;
  return bound > 0 ? error / bound : INFINITY;
}

std::string show(std::uint32_t bits) {
  return bits == kPoisonF32 ? "nothing (poison)" : fmt::format("{}", std::bit_cast<float>(bits));
}

void reject(Comparison& result, std::string message) {
  if (result.ok) result.message = std::move(message);
  result.ok = false;
}

bool same_length(std::size_t got, std::size_t expected, Comparison& result) {
  if (got != expected) reject(result, fmt::format("{} elements, expected {}", got, expected));
  return got == expected;
}

// The noise of one output: the sum of its variances, by the row of activations that it came from.
class NoiseSum {
 public:
  void add(const Noise& noise) {
    if (noise.variance != 0) rows_[noise.row] += noise.variance;
  }

  // The largest sum of squared errors that noise can make; 0 where there is none.
  //
  // Its mean is the sum of the variances, but the errors of one row of activations are shared by all of that row's
  // outputs, so the sum has few independent terms, at worst one per row, and a small sample strays far from its mean.
  // For normal errors it is then a chi-squared with a degree of freedom per row, and the root of it is allowed three
  // standard deviations of the row with the most noise above the root of the mean: for a single row that is 16 times
  // the variance, four standard deviations in the root mean square, and for any other number of equal rows it is passed
  // as rarely (6.3e-5 of samples for 1 row, 2.0e-5 for 100). Errors of rounding are uniform: their tails are lighter.
  double most() const {
    double sum = 0;
    double largest = 0;
    for (const auto& [row, variance] : rows_) {
      sum += variance;
      largest = std::max(largest, variance);
    }
    const double root = std::sqrt(sum) + 3 * std::sqrt(largest);
    return root * root;
  }

 private:
  std::map<std::int64_t, double> rows_;
};

}  // namespace

void Comparison::include(const Comparison& other) {
  const bool closer = ratio(other.worst, other.bound) > ratio(worst, bound);
  const bool tighter = other.bound > 0 && (bound == 0 || other.bound < bound);
  if (closer || (worst == 0 && other.worst == 0 && tighter)) {
    worst = other.worst;
    bound = other.bound;
  }
  if (!other.ok) reject(*this, other.message);
}

Comparison compare_ints(std::span<const std::uint32_t> got, std::span<const std::uint32_t> expected) {
  Comparison result;
  if (!same_length(got.size(), expected.size(), result)) return result;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    result.worst = 1;
    reject(result, fmt::format("element {} is {}, expected {}", i, static_cast<std::int32_t>(got[i]),
                               static_cast<std::int32_t>(expected[i])));
  }
  return result;
}

Comparison compare_floats(std::span<const std::uint32_t> got, std::span<const std::uint32_t> expected,
                          const FloatLimits& limits) {
  Comparison result;
  if (!same_length(got.size(), expected.size(), result)) return result;
  if (!same_length(limits.bound.size(), expected.size(), result)) return result;
  if (!limits.noise.empty() && !same_length(limits.noise.size(), expected.size(), result)) return result;
  double squared_error = 0;
  double squared = 0;
  NoiseSum noise;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double is = as_double(got[i]);
    const double want = as_double(expected[i]);
    if (expected[i] == kPoisonF32 || got[i] == kPoisonF32) {
      if (got[i] == expected[i]) continue;
      reject(result, fmt::format("element {} is {}, expected {}", i, show(got[i]), show(expected[i])));
      result.include({.ok = true, .worst = INFINITY, .bound = 0});
      continue;
    }
    if (std::isnan(want) || std::isinf(want) || std::isnan(is) || std::isinf(is)) {
      if ((std::isnan(is) && std::isnan(want)) || is == want) continue;
      const auto held = [&](double x) { return std::clamp(x, -limits.overflow, limits.overflow); };
      if (std::isfinite(limits.bound[i]) && std::fabs(held(is) - held(want)) <= limits.bound[i]) continue;
      reject(result, fmt::format("element {} is {}, expected {}", i, is, want));
      result.include({.ok = true, .worst = INFINITY, .bound = 0});
      continue;
    }
    const double error = std::fabs(is - want);
    squared_error += error * error;
    squared += want * want;
    if (!limits.noise.empty()) noise.add(limits.noise[i]);
    Comparison element{.ok = error <= limits.bound[i], .worst = error, .bound = limits.bound[i]};
    if (!element.ok) {
      element.message = fmt::format("element {} is {}, expected {}: off by {:.3g}, allowed {:.3g}", i, is, want, error,
                                    limits.bound[i]);
    }
    result.include(element);
  }
  // Not more than either: a noise that is no number allows nothing.
  if (!(squared_error <= limits.nmse * squared) && !(squared_error <= noise.most())) {
    reject(result, fmt::format("normalised mean squared error {:.3g}, allowed {:.3g}", squared_error / squared,
                               std::fmax(limits.nmse, noise.most() / squared)));
  }
  return result;
}

}  // namespace conclave::test
