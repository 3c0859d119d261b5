#include "quant/single_scale.h"

#include <cmath>
#include <limits>

namespace conclave {
namespace {

constexpr std::size_t kValues = 32;
using Values = std::array<double, kValues>;

struct Solution {
  std::uint16_t d = 0;
  Judged judged{{}, std::numeric_limits<double>::infinity()};
};

}  // namespace

SingleScale encode_single_scale(std::span<const float, 32> values, LevelRange range, std::span<const double> reach) {
  Values x;
  double largest = 0;  // of largest magnitude, with its sign
  for (std::size_t i = 0; i < kValues; ++i) {
    x[i] = values[i];
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  }
  SingleScale out;
  if (std::abs(largest) < kHalfOfSmallestF16) return out;

  // Every scale is judged as the f16 it becomes: the rounding is the whole error where the values are nearly equal.
  Solution best;
  const auto consider = [&](std::uint16_t bits) {
    const Judged judged = judge(x, {.step = f16_to_f32(bits)}, range);
    if (!(judged.error < best.judged.error)) return false;
    best = {bits, judged};
    return true;
  };
  for (const double level : reach) {
    const ScaleFit fit = fit_scale(assign_levels(x, {level / largest}, range));
    consider(nearest_nonzero_f16(fit.scale));
  }
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    if (!consider(nearest_finite_f16(fit_scale(best.judged.sums).scale))) break;
  }
  // The neighbours: far apart where the f16 is subnormal.
  const int middle = best.d;
  for (const int step : {-2, -1, 1, 2}) {
    const int magnitude = (middle & 0x7FFF) + step;
    if (magnitude < 0 || magnitude >= 0x7C00) continue;
    consider(static_cast<std::uint16_t>((middle & 0x8000) | magnitude));
  }

  out.d = best.d;
  Values levels;
  pick_levels(x, Grid{.step = f16_to_f32(best.d)}.map(), range, levels);
  for (std::size_t i = 0; i < kValues; ++i) out.levels[i] = static_cast<std::int8_t>(levels[i]);
  return out;
}

}  // namespace conclave
