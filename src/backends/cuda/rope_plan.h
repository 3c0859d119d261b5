// rope: a block takes a token and a few of its heads. Sines and cosines of the token's angles are computed in f64 once
// per block, kRopePairs at a time, and every head is rotated with them in f32.
#pragma once

#include <algorithm>

#include "backends/cuda/view.h"

namespace conclave::cuda {

inline constexpr int kRopeThreads = 256;
inline constexpr int kRopePairs = 128;  // of a head at a time; so many frequencies travel with the launch
inline constexpr int kRopeHeads = 8;    // of a block
inline constexpr std::int64_t kRopeMaxBlocks = 1 << 20;

struct RopeArgs {
  View x;
  View positions;
  View factors;
  View out;
  const std::int32_t* live = nullptr;
  std::int64_t n_rot = 0;
  bool neox = true;
  double magnitude = 1;
  // f(i) without the model's factors, where a head has no more than kRopePairs pairs; else the kernel computes
  // base^(-2i/n_rot) * ((1 - r) + r / factor), r = clamp((i - low) / width, 0, 1).
  double frequencies[kRopePairs] = {};
  double base = 0;
  double factor = 1;
  double low = 0;
  double width = 1;
};

constexpr LaunchPlan rope_plan(std::int64_t n_tokens, std::int64_t n_heads) {
  const std::int64_t items = n_tokens * ceil_div(n_heads, kRopeHeads);
  if (items == 0) return {};
  return {.blocks = std::min(items, kRopeMaxBlocks), .threads = kRopeThreads};
}
static_assert(rope_plan(1, 32).blocks == 4 && rope_plan(3, 1).blocks == 3);
static_assert(rope_plan(0, 32).blocks == 0 && rope_plan(5, 0).blocks == 0);

int launch_rope(const RopeArgs& args, const Stream& stream);

}  // namespace conclave::cuda
