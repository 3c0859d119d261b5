#include "quant/q6_k.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/half.h"
#include "quant/level_fit.h"

namespace conclave {
namespace {

constexpr std::size_t kGroups = 16;
constexpr std::size_t kGroupSize = 16;
constexpr LevelRange kLevels{-32, 31};
constexpr LevelRange kScales{-128, 127};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The error counts as w * (x - decoded)^2 with w = 1 + x^2 / (4 mean(x^2)): a little more where |x| is large. That
// costs 0.4% of plain RMSE on normal and Laplace values, and takes 5% and 10% off the error weighted with x^2.
constexpr double kLargeValues = 0.25;

struct Group {
  std::array<double, kGroupSize> x;
  std::array<double, kGroupSize> w;
  double scale;   // the best one, before it is rounded to d * int8
  double narrow;  // the mean of values so close that they share a level, else 0
};
using Groups = std::array<Group, kGroups>;

struct Choice {
  double scale = 0;  // -128..127
  Judged judged{{}, kInfinity};
};

struct Solution {
  std::uint16_t d = 0;
  std::array<Choice, kGroups> groups{};
  double error = kInfinity;
};

Group load_group(std::span<const float, kGroupSize> values) {
  // Where the largest magnitude lands: on either end of the levels, just short of it, or cut off.
  static constexpr std::array<double, 24> kReach = {-32,   -32.8, -32.4, -31.6, -31.2, -30.8, -30.4, -30,
                                                    -29.6, -29.2, -28.8, -28.4, -28,   32,    31.6,  31.2,
                                                    30.8,  30.4,  30,    29.6,  29.2,  28.8,  28.4,  28};
  constexpr double kNarrow = 1.0 / 64;  // of the largest magnitude: half a level
  Group group{};
  double largest = 0;
  double lowest = kInfinity;
  double highest = -kInfinity;
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < kGroupSize; ++i) {
    const double x = values[i];
    group.x[i] = x;
    squares += x * x;
    sum += x;
    lowest = std::min(lowest, x);
    highest = std::max(highest, x);
    if (std::abs(x) > std::abs(largest)) largest = x;
  }
  if (largest == 0) return group;
  if (highest - lowest <= kNarrow * std::abs(largest)) group.narrow = sum / kGroupSize;
  for (std::size_t i = 0; i < kGroupSize; ++i) {
    group.w[i] = 1 + kLargeValues * kGroupSize * group.x[i] * group.x[i] / squares;
  }
  std::array<double, kReach.size()> inverses;
  for (std::size_t k = 0; k < kReach.size(); ++k) inverses[k] = kReach[k] / largest;
  group.scale = search_scale(group.x, kLevels, inverses, group.w).scale;
  return group;
}

void consider(const Group& group, double d, double scale, Choice& best) {
  const Judged judged = judge(group.x, {.step = d * scale}, kLevels, group.w);
  if (judged.error < best.judged.error) best = {scale, judged};
}

// Only d * scale * level counts for values that share a level, and many products lie close to their mean.
double scale_for_narrow(double mean, double d) {
  double best = 0;
  double least = std::abs(mean);
  for (double scale = kScales.lo; scale <= kScales.hi; ++scale) {
    const double step = d * scale;
    if (step == 0) continue;
    const double miss = std::abs(mean - step * round_to_even(clamp_level(mean / step, kLevels)));
    if (miss < least) {
      least = miss;
      best = scale;
    }
  }
  return best;
}

Choice choose(const Group& group, double d) {
  Choice best;
  const double middle = d == 0 ? 0 : round_to_even(clamp_level(group.scale / d, kScales));
  for (double scale = std::max(kScales.lo, middle - 1); scale <= std::min(kScales.hi, middle + 1); ++scale) {
    consider(group, d, scale, best);
  }
  if (group.narrow != 0) consider(group, d, scale_for_narrow(group.narrow, d), best);
  return best;
}

Solution solve(const Groups& groups, std::uint16_t d) {
  Solution out{.d = d, .groups = {}, .error = 0};
  for (std::size_t g = 0; g < kGroups; ++g) {
    out.groups[g] = choose(groups[g], f16_to_f32(d));
    out.error += out.groups[g].judged.error;
  }
  return out;
}

// The d of least error for the scales and levels of `solution`.
double refit(const Solution& solution) {
  double aa = 0;  // sums over a = scale * level
  double xa = 0;
  for (const Choice& choice : solution.groups) {
    aa += choice.scale * choice.scale * choice.judged.sums.qq;
    xa += choice.scale * choice.judged.sums.xq;
  }
  return aa > 0 ? xa / aa : f16_to_f32(solution.d);
}

// All 256 values are equal: the product scale * level for which d, rounded to f16, comes nearest.
Solution solve_constant(const Groups& groups, double value) {
  std::uint16_t best = 0;
  double least = kInfinity;
  for (double scale = 64; scale <= -kScales.lo; ++scale) {
    for (double level = 17; level <= -kLevels.lo; ++level) {
      const std::uint16_t d = nearest_finite_f16(value / (scale * level));
      const double miss = std::abs(value - f16_to_f32(d) * scale * level);
      if (miss < least) {
        least = miss;
        best = d;
      }
    }
  }
  return solve(groups, best);
}

// `max_scale`: the group scale of largest magnitude, with its sign.
Solution search(const Groups& groups, double max_scale) {
  Solution best;
  const auto attempt = [&](std::uint16_t d) {
    const Solution current = solve(groups, d);
    if (!(current.error < best.error)) return false;
    best = current;
    return true;
  };
  // Below 128 a little range is lost, but the other groups and the rounding of d to f16 may fit better. The last start
  // is a power of two: values on a lattice are then exact.
  for (const double top : {128.0, 125.0, 120.0, 111.0, 97.0}) attempt(nearest_nonzero_f16(-max_scale / top));
  attempt(nearest_nonzero_f16(power_of_two_above(std::abs(max_scale) / kScales.hi)));
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    if (!attempt(nearest_finite_f16(refit(best)))) break;
  }
  return best;
}

}  // namespace

void decode(const BlockQ6_K& block, std::span<float, 256> out) {
  const float d = f16_to_f32(block.d);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t half = i / 128;
    const int low = (block.ql[64 * half + i % 64] >> (4 * ((i / 64) % 2))) & 0x0F;
    const int high = (block.qh[32 * half + i % 32] >> (2 * ((i / 32) % 4))) & 0x03;
    const float scale = d * static_cast<float>(block.scales[i / 16]);
    out[i] = scale * static_cast<float>((low | (high << 4)) - 32);
  }
}

void encode(std::span<const float, 256> values, BlockQ6_K& block) {
  block = {};
  Groups groups;
  double largest = 0;
  double max_scale = 0;  // of largest magnitude, with its sign
  for (const float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  if (largest < kHalfOfSmallestF16) return;
  for (std::size_t g = 0; g < kGroups; ++g) {
    groups[g] = load_group(values.subspan(g * kGroupSize).first<kGroupSize>());
    if (std::abs(groups[g].scale) > std::abs(max_scale)) max_scale = groups[g].scale;
  }

  const bool constant = std::all_of(values.begin(), values.end(), [&](float value) { return value == values[0]; });
  Solution best = search(groups, max_scale);
  if (constant) {
    if (const Solution other = solve_constant(groups, values[0]); other.error < best.error) best = other;
  }
  block.d = best.d;
  const double d = f16_to_f32(best.d);
  std::array<double, kGroupSize> levels;
  for (std::size_t g = 0; g < kGroups; ++g) {
    block.scales[g] = static_cast<std::int8_t>(best.groups[g].scale);
    pick_levels(groups[g].x, Grid{.step = d * best.groups[g].scale}.map(), kLevels, levels);
    for (std::size_t l = 0; l < kGroupSize; ++l) {
      const std::size_t i = g * kGroupSize + l;
      const int level = static_cast<int>(levels[l]) + 32;
      std::uint8_t& low = block.ql[64 * (i / 128) + i % 64];
      std::uint8_t& high = block.qh[32 * (i / 128) + i % 32];
      low = static_cast<std::uint8_t>(low | ((level & 0x0F) << (4 * ((i / 64) % 2))));
      high = static_cast<std::uint8_t>(high | ((level >> 4) << (2 * ((i / 32) % 4))));
    }
  }
}

}  // namespace conclave
