// What every encoder here rests on: pick the nearest levels under a scale, then the scale that suits those levels best.
//
// Over a group of N values, levels q[i] = clamp(round(x[i] * inverse + shift), lo, hi) give three sums, and from them
// the least-squares scale and offset. Everything is f64: the squares of the largest and of the smallest f32 fit.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/half.h"

namespace conclave {

struct LevelRange {
  double lo;
  double hi;
};

struct LevelSums {
  double q;   // sum of w[i] * q[i]
  double qq;  // sum of w[i] * q[i]^2
  double xq;  // sum of w[i] * x[i] * q[i]
};

// w[i] = 1: what most formats use. Any array of N doubles may stand in its place.
struct Unweighted {
  constexpr double operator[](std::size_t) const { return 1; }
};

// How values become levels: round(x * inverse + shift).
struct LevelMap {
  double inverse;
  double shift = 0;
};

// To nearest, ties to even; |x| < 2^51. Plain arithmetic, so that loops over it become vector code on any target.
inline double round_to_even(double x) {
  constexpr double kAllIntegersFromHere = 0x1.8p52;
  return (x + kAllIntegersFromHere) - kAllIntegersFromHere;
}

inline double clamp_level(double x, LevelRange range) {
  const double above = x < range.lo ? range.lo : x;
  return range.hi < above ? range.hi : above;
}

template <std::size_t N>
void pick_levels(const std::array<double, N>& x, LevelMap map, LevelRange range, std::array<double, N>& levels) {
  for (std::size_t i = 0; i < N; ++i) {
    levels[i] = round_to_even(clamp_level(x[i] * map.inverse + map.shift, range));
  }
}

// Adds f(i) for i in 0..N-1 in one fixed order: four chains, so that the additions need not wait for each other.
template <std::size_t N, class F>
double sum_over(F f) {
  constexpr std::size_t kLanes = 4;
  static_assert(N % kLanes == 0);
  std::array<double, kLanes> sum{};
  for (std::size_t i = 0; i < N; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) sum[lane] += f(i + lane);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

template <std::size_t N, class Weights = Unweighted>
LevelSums sum_levels(const std::array<double, N>& x, const std::array<double, N>& q, const Weights& w = {}) {
  return {.q = sum_over<N>([&](std::size_t i) { return w[i] * q[i]; }),
          .qq = sum_over<N>([&](std::size_t i) { return w[i] * q[i] * q[i]; }),
          .xq = sum_over<N>([&](std::size_t i) { return w[i] * x[i] * q[i]; })};
}

template <std::size_t N, class Weights = Unweighted>
LevelSums assign_levels(const std::array<double, N>& x, LevelMap map, LevelRange range, const Weights& w = {}) {
  std::array<double, N> levels;
  pick_levels(x, map, range, levels);
  return sum_levels(x, levels, w);
}

// What a level stands for: step * q + offset.
struct Grid {
  double step;
  double offset = 0;

  LevelMap map() const { return step == 0 ? LevelMap{0, 0} : LevelMap{1 / step, -offset / step}; }
};

struct Judged {
  LevelSums sums;
  double error;  // sum of w[i] * (x[i] - offset - step * q[i])^2, from the rests: exact values give exactly 0
};

// The levels nearest to x on `grid`, and what they lose.
template <std::size_t N, class Weights = Unweighted>
Judged judge(const std::array<double, N>& x, Grid grid, LevelRange range, const Weights& w = {}) {
  std::array<double, N> levels;
  pick_levels(x, grid.map(), range, levels);
  const double error = sum_over<N>([&](std::size_t i) {
    const double rest = x[i] - grid.offset - grid.step * levels[i];
    return w[i] * rest * rest;
  });
  return {sum_levels(x, levels, w), error};
}

// x ~ scale * q without an offset. The error is sum(x^2) - gain.
struct ScaleFit {
  double scale = 0;
  double gain = 0;
};

inline ScaleFit fit_scale(const LevelSums& sums) {
  if (sums.qq == 0) return {};
  return {sums.xq / sums.qq, sums.xq * sums.xq / sums.qq};
}

// The best scale found for levels `range`: starts from 1 / inverse for each of `inverses`, then alternates levels and
// scale. Of scales that are equally good but for rounding, the first one.
template <std::size_t N, class Weights = Unweighted>
ScaleFit search_scale(const std::array<double, N>& x, LevelRange range, std::span<const double> inverses,
                      const Weights& w = {}) {
  constexpr int kRounds = 4;
  constexpr double kBetter = 1 + 1e-12;
  ScaleFit best;
  for (const double inverse : inverses) {
    const ScaleFit fit = fit_scale(assign_levels(x, {inverse}, range, w));
    if (fit.gain > best.gain * kBetter) best = fit;
  }
  for (int round = 0; round < kRounds && best.gain > 0; ++round) {
    const ScaleFit fit = fit_scale(assign_levels(x, {1 / best.scale}, range, w));
    if (!(fit.gain > best.gain * kBetter)) break;
    best = fit;
  }
  return best;
}

// Smaller values than this are nearer to zero than to any other value of a format whose scale is an f16.
inline constexpr double kHalfOfSmallestF16 = 0x1p-25;

// The nearest finite f16: a scale never becomes infinite.
inline std::uint16_t nearest_finite_f16(double value) {
  constexpr double kLargest = 65504;
  return f32_to_f16(static_cast<float>(value > kLargest ? kLargest : value < -kLargest ? -kLargest : value));
}

// The same, but a scale that is not zero does not become it: a coarse grid loses less than none.
inline std::uint16_t nearest_nonzero_f16(double value) {
  const std::uint16_t bits = nearest_finite_f16(value);
  if (value == 0 || (bits & 0x7FFF) != 0) return bits;
  return static_cast<std::uint16_t>(bits | 1);
}

inline double power_of_two_above(double value) {
  return value > 0 ? std::exp2(std::ceil(std::log2(value))) : 0;
}

}  // namespace conclave
