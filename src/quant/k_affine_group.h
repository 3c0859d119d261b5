// One group of 32 values of q4_k or q5_k: its ideal scale and offset, and the 6-bit ones under a block's d and dmin.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <span>

#include "quant/level_fit.h"

namespace conclave::k_affine {

inline constexpr std::size_t kGroupSize = 32;
inline constexpr double kMaxScale = 63;  // 6 bits

struct Group {
  std::array<double, kGroupSize> x;  // less their mean: no digits are lost to a common offset
  double mean;
  double lowest;  // of x
  double highest;
  bool is_pair;  // no value but those two
};

Group load_group(std::span<const float, kGroupSize> values);

// x + mean ~ scale * q + offset, with levels whose mean is `level`.
struct AffineFit {
  double scale = 0;
  double offset = 0;
  double level = 0;
};

AffineFit fit_group(const Group& group, LevelRange range);

// The offset held at zero, for a group that would like it to be on the other side.
AffineFit fit_group_at_zero(const Group& group, LevelRange range);

struct Steps {
  double d;
  double dmin;
};

// A group's share of a block: x + mean ~ (d * scale) * q - dmin * min.
struct Choice {
  double scale = 0;  // 0..63
  double min = 0;    // 0..63
  Judged judged{{}, std::numeric_limits<double>::infinity()};
};

Grid grid_of(const Group& group, Steps steps, double scale, double min);

// The scale and minimum near those of `fit`.
Choice choose(const Group& group, const AffineFit& fit, Steps steps, LevelRange range);

// Those of `old`, made for other steps, or the best that a walk over neighbouring ones finds.
Choice follow(const Group& group, const Choice& old, Steps steps, LevelRange range);

}  // namespace conclave::k_affine
