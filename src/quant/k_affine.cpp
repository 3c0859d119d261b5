#include "quant/k_affine.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quant/k_affine_group.h"

namespace conclave {
namespace {

using k_affine::AffineFit;
using k_affine::Choice;
using k_affine::Group;
using k_affine::kGroupSize;
using k_affine::kMaxScale;
using k_affine::Steps;

constexpr std::size_t kGroups = 8;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct F16Steps {
  std::uint16_t d = 0;
  std::uint16_t dmin = 0;

  Steps steps() const { return {f16_to_f32(d), f16_to_f32(dmin)}; }
};

struct Solution {
  F16Steps at;
  std::array<Choice, kGroups> groups{};
  double error = kInfinity;
};

using Groups = std::array<Group, kGroups>;
using Fits = std::array<AffineFit, kGroups>;

Solution solve(const Groups& groups, const Fits& fits, F16Steps at, LevelRange range) {
  Solution out{.at = at, .groups = {}, .error = 0};
  for (std::size_t g = 0; g < kGroups; ++g) {
    out.groups[g] = k_affine::choose(groups[g], fits[g], at.steps(), range);
    out.error += out.groups[g].judged.error;
  }
  return out;
}

// The scales and minima of `from`, or better ones beside them, under other steps.
Solution follow(const Groups& groups, const Solution& from, F16Steps at, LevelRange range) {
  Solution out{.at = at, .groups = {}, .error = 0};
  for (std::size_t g = 0; g < kGroups; ++g) {
    out.groups[g] = k_affine::follow(groups[g], from.groups[g], at.steps(), range);
    out.error += out.groups[g].judged.error;
  }
  return out;
}

// d and dmin of least error for the scales, minima and levels of `solution`. With a = scale * level and b = min, each
// value loses (x - d * a + dmin * b)^2. dmin answers to the d that f16 can hold.
F16Steps refit(const Groups& groups, const Solution& solution) {
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double xa = 0;
  double xb = 0;
  for (std::size_t g = 0; g < kGroups; ++g) {
    const Choice& choice = solution.groups[g];
    aa += choice.scale * choice.scale * choice.judged.sums.qq;
    ab += choice.scale * choice.min * choice.judged.sums.q;
    bb += choice.min * choice.min * kGroupSize;
    xa += choice.scale * (choice.judged.sums.xq + groups[g].mean * choice.judged.sums.q);
    xb += choice.min * groups[g].mean * kGroupSize;
  }
  constexpr double kSingular = 1e-9;  // below this d and dmin do the same thing
  F16Steps out = solution.at;
  const double determinant = aa * bb - ab * ab;
  if (determinant > kSingular * aa * bb) {
    out.d = nearest_finite_f16(std::max(0.0, (xa * bb - xb * ab) / determinant));
  } else if (aa > 0) {
    out.d = nearest_finite_f16(std::max(0.0, (xa + out.steps().dmin * ab) / aa));
  }
  if (bb > 0) out.dmin = nearest_finite_f16((out.steps().d * ab - xb) / bb);
  return out;
}

// Keeps the better one of `best` and what can be made of these fits.
void search(const Groups& groups, const Fits& fits, LevelRange range, double sign, Solution& best) {
  double max_scale = 0;
  double max_min = 0;
  for (const AffineFit& fit : fits) {
    max_scale = std::max(max_scale, fit.scale);
    max_min = std::max(max_min, std::abs(fit.offset));
  }
  // Constant groups only: d is free to mend what dmin leaves over.
  if (max_scale == 0) max_scale = max_min / range.hi;

  // The largest scale and minimum become `top`; below 63 they lose a little range, but the other groups and the
  // rounding of d to f16 may fit better. The last start is a power of two: values on a lattice are then exact.
  Solution found;
  const auto attempt = [&](double d, double dmin) {
    const F16Steps at{nearest_nonzero_f16(d), nearest_nonzero_f16(sign * dmin)};
    if (const Solution current = solve(groups, fits, at, range); current.error < found.error) found = current;
  };
  for (const double top : {63.0, 61.5, 59.0, 55.0}) attempt(max_scale / top, max_min / top);
  // Where groups can be exact, the rounding of d and dmin is the whole error.
  if (std::all_of(groups.begin(), groups.end(), [](const Group& group) { return group.is_pair; })) {
    for (double top = 62; top > 40; --top) attempt(max_scale / top, max_min / top);
  }
  attempt(power_of_two_above(max_scale / kMaxScale), power_of_two_above(max_min / kMaxScale));

  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    const Solution current = follow(groups, found, refit(groups, found), range);
    if (!(current.error < found.error)) break;
    found = current;
  }
  if (found.error < best.error) best = found;
}

// All 256 values are equal: dmin carries the value from below, and d what its rounding to f16 leaves over.
KAffine encode_constant(double value) {
  const double ideal = -value / kMaxScale;
  std::uint16_t dmin = nearest_finite_f16(ideal);
  if (f16_to_f32(dmin) < ideal) {
    // One f16 further up, so that what is left over is positive: away from zero, or towards it.
    dmin = static_cast<std::uint16_t>(ideal > 0 ? dmin + 1 : dmin - 1);
  }
  KAffine out{.d = nearest_finite_f16(value + kMaxScale * f16_to_f32(dmin)), .dmin = dmin};
  out.scales.scale.fill(1);
  out.scales.min.fill(static_cast<std::uint8_t>(kMaxScale));
  out.levels.fill(1);
  return out;
}

}  // namespace

KAffine encode_k_affine(std::span<const float, 256> values, int max_level) {
  const LevelRange range{0, static_cast<double>(max_level)};
  KAffine out;
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(static_cast<double>(value)));
  if (largest < kHalfOfSmallestF16) return out;
  const bool constant = std::all_of(values.begin(), values.end(), [&](float value) { return value == values[0]; });
  if (constant && largest < kMaxScale * 65504) return encode_constant(values[0]);

  Groups groups;
  Fits fits;
  std::size_t n_above = 0;  // groups that lie above zero altogether
  for (std::size_t g = 0; g < kGroups; ++g) {
    groups[g] = k_affine::load_group(values.subspan(g * kGroupSize).first<kGroupSize>());
    fits[g] = k_affine::fit_group(groups[g], range);
    n_above += fits[g].offset > 0 ? 1 : 0;
  }
  // All minima of a block have one sign, that of dmin: offsets of the other sign are held at zero.
  Solution best;
  for (const double sign : {1.0, -1.0}) {
    if (sign > 0 ? n_above == kGroups : n_above == 0) continue;
    Fits held = fits;
    for (std::size_t g = 0; g < kGroups; ++g) {
      if (fits[g].offset * sign > 0) held[g] = k_affine::fit_group_at_zero(groups[g], range);
    }
    search(groups, held, range, sign, best);
  }

  out.d = best.at.d;
  out.dmin = best.at.dmin;
  std::array<double, kGroupSize> levels;
  for (std::size_t g = 0; g < kGroups; ++g) {
    const Choice& choice = best.groups[g];
    out.scales.scale[g] = static_cast<std::uint8_t>(choice.scale);
    out.scales.min[g] = static_cast<std::uint8_t>(choice.min);
    pick_levels(groups[g].x, k_affine::grid_of(groups[g], best.at.steps(), choice.scale, choice.min).map(), range,
                levels);
    for (std::size_t i = 0; i < kGroupSize; ++i) {
      out.levels[g * kGroupSize + i] = static_cast<std::uint8_t>(levels[i]);
    }
  }
  return out;
}

}  // namespace conclave
