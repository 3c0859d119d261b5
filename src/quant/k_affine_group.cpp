#include "quant/k_affine_group.h"

#include <algorithm>
#include <cmath>

namespace conclave::k_affine {
namespace {

double choose_min(const Group& group, Steps steps, double scale, double level) {
  if (steps.dmin == 0) return 0;
  const double offset = group.mean - steps.d * scale * level;
  return round_to_even(clamp_level(-offset / steps.dmin, {0, kMaxScale}));
}

void consider(const Group& group, Steps steps, LevelRange range, double scale, double min, Choice& best) {
  const Judged judged = judge(group.x, grid_of(group, steps, scale, min), range);
  if (judged.error < best.judged.error) best = {scale, min, judged};
}

// The group holds one or two different values: every 6-bit scale is worth a look, as only scale * level counts, each
// with the minimum at the lower value or at zero.
Choice choose_for_pair(const Group& group, Steps steps, LevelRange range) {
  if (group.lowest == group.highest && group.mean == 0) return {.judged = {{}, 0}};
  const double ideal = steps.dmin == 0 ? 0 : -(group.lowest + group.mean) / steps.dmin;
  const double floor = std::floor(clamp_level(ideal, {0, kMaxScale}));
  const double n_highest = static_cast<double>(std::count(group.x.begin(), group.x.end(), group.highest));
  const double n_lowest = kGroupSize - n_highest;
  Choice best;
  for (const double min : {floor, std::min(floor + 1, kMaxScale), 0.0}) {
    for (double scale = 0; scale <= kMaxScale; ++scale) {
      const Grid grid = grid_of(group, steps, scale, min);
      const LevelMap map = grid.map();
      const double q_lowest = round_to_even(clamp_level(group.lowest * map.inverse + map.shift, range));
      const double q_highest = round_to_even(clamp_level(group.highest * map.inverse + map.shift, range));
      const double lowest = group.lowest - grid.offset - grid.step * q_lowest;
      const double highest = group.highest - grid.offset - grid.step * q_highest;
      const double error = n_lowest * lowest * lowest + n_highest * highest * highest;
      if (!(error < best.judged.error)) continue;
      const LevelSums sums{.q = n_lowest * q_lowest + n_highest * q_highest,
                           .qq = n_lowest * q_lowest * q_lowest + n_highest * q_highest * q_highest,
                           .xq = n_lowest * q_lowest * group.lowest + n_highest * q_highest * group.highest};
      best = {scale, min, {sums, error}};
    }
  }
  return best;
}

}  // namespace

Group load_group(std::span<const float, kGroupSize> values) {
  Group group{};
  for (const float value : values) group.mean += value;
  group.mean /= kGroupSize;
  group.lowest = std::numeric_limits<double>::infinity();
  group.highest = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < kGroupSize; ++i) {
    const double x = values[i] - group.mean;
    group.x[i] = x;
    group.lowest = std::min(group.lowest, x);
    group.highest = std::max(group.highest, x);
  }
  group.is_pair =
      std::all_of(group.x.begin(), group.x.end(), [&](double x) { return x == group.lowest || x == group.highest; });
  return group;
}

// Scale and offset free. As x has mean 0, the levels alone give the gain: xq^2 / (qq - q^2 / n). The starts lay the
// span of the values over `taken` levels, from either end: a few less than there are often fit better, a cut at the far
// end too. Lost: starts from the middle of the span (2% more error at the same count), and levels beyond hi + 1.
AffineFit fit_group(const Group& group, LevelRange range) {
  constexpr int kRounds = 4;
  const double span = group.highest - group.lowest;
  AffineFit best{.scale = 0, .offset = group.mean, .level = 0};
  if (!(span > 0)) return best;

  double best_gain = 0;
  const auto consider = [&](LevelMap map) {
    const LevelSums sums = assign_levels(group.x, map, range);
    const double spread = sums.qq - sums.q * sums.q / kGroupSize;
    if (!(spread > 0)) return false;
    const double gain = sums.xq * sums.xq / spread;
    if (!(gain > best_gain)) return false;
    best_gain = gain;
    best.scale = sums.xq / spread;
    best.level = sums.q / kGroupSize;
    best.offset = group.mean - best.scale * best.level;
    return true;
  };
  for (double taken = range.hi - 2; taken < range.hi + 1; taken += 0.25) {
    const double inverse = taken / span;
    consider({inverse, -group.lowest * inverse});
    consider({inverse, range.hi - group.highest * inverse});
  }
  for (int round = 0; round < kRounds && best_gain > 0; ++round) {
    const double inverse = 1 / best.scale;
    if (!consider({inverse, (group.mean - best.offset) * inverse})) break;
  }
  return best;
}

AffineFit fit_group_at_zero(const Group& group, LevelRange range) {
  std::array<double, kGroupSize> x;
  for (std::size_t i = 0; i < kGroupSize; ++i) x[i] = group.x[i] + group.mean;
  const double highest = group.highest + group.mean;
  if (!(highest > 0)) return {};
  std::array<double, 12> inverses;
  for (std::size_t k = 0; k < inverses.size(); ++k) {
    inverses[k] = (range.hi - 0.5 + 0.2 * static_cast<double>(k)) / highest;
  }
  const ScaleFit fit = search_scale(x, range, inverses);
  if (!(fit.scale > 0)) return {};
  const LevelSums sums = assign_levels(x, {1 / fit.scale}, range);
  return {.scale = fit.scale, .offset = 0, .level = sums.q / kGroupSize};
}

Grid grid_of(const Group& group, Steps steps, double scale, double min) {
  return {.step = steps.d * scale, .offset = -steps.dmin * min - group.mean};
}

// Three neighbouring scales, each with the minimum that suits its levels.
Choice choose(const Group& group, const AffineFit& fit, Steps steps, LevelRange range) {
  if (group.is_pair) return choose_for_pair(group, steps, range);
  const double middle = steps.d > 0 ? round_to_even(std::min(fit.scale / steps.d, kMaxScale)) : 0;
  Choice best;
  for (double scale = std::max(0.0, middle - 1); scale <= std::min(kMaxScale, middle + 1); ++scale) {
    const double min = choose_min(group, steps, scale, fit.level);
    Choice local;
    consider(group, steps, range, scale, min, local);
    const double again = choose_min(group, steps, scale, local.judged.sums.q / kGroupSize);
    if (again != min) consider(group, steps, range, scale, again, local);
    if (local.judged.error < best.judged.error) best = local;
  }
  return best;
}

Choice follow(const Group& group, const Choice& old, Steps steps, LevelRange range) {
  struct Move {
    double scale;
    double min;
  };
  static constexpr std::array<Move, 6> kMoves = {{{-1, 0}, {1, 0}, {0, -1}, {0, 1}, {1, 1}, {-1, -1}}};
  constexpr int kSteps = 4;
  if (group.is_pair) return choose_for_pair(group, steps, range);
  Choice best;
  const auto try_at = [&](double scale, double min) {
    if (scale < 0 || scale > kMaxScale || min < 0 || min > kMaxScale) return;
    consider(group, steps, range, scale, min, best);
  };
  try_at(old.scale, old.min);
  for (int step = 0; step < kSteps; ++step) {
    const Choice from = best;
    for (const Move move : kMoves) try_at(from.scale + move.scale, from.min + move.min);
    if (best.scale == from.scale && best.min == from.min) break;
  }
  return best;
}

}  // namespace conclave::k_affine
