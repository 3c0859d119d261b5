// argmax: rows are cut into segments of one length, a block each, so that one row of a vocabulary keeps many blocks
// busy; then a warp per row finds the best of its segments.
#pragma once

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

// The largest element so far, at the lowest index that has it. Nothing yet: minus infinity, 0.
struct Best {
  float value;
  std::int32_t index;
};

struct ArgmaxArgs {
  View x;    // [n, d]
  View ids;  // [n]
  const std::int32_t* live = nullptr;
};

inline constexpr int kArgmaxThreads = 256;
inline constexpr std::int64_t kArgmaxSegment = std::int64_t{kArgmaxThreads} * kRunLength;
inline constexpr int kArgmaxRowsPerBlock = 4;

constexpr std::int64_t argmax_segments(std::int64_t d) {
  return ceil_div(d, kArgmaxSegment);
}
constexpr LaunchPlan argmax_segments_plan(std::int64_t n_rows, std::int64_t d) {
  return {.blocks = std::min(n_rows * argmax_segments(d), kManyBlocks), .threads = kArgmaxThreads};
}
// Nothing where the segments are the rows.
constexpr LaunchPlan argmax_rows_plan(std::int64_t n_rows, std::int64_t d) {
  if (argmax_segments(d) <= 1) return {};
  return {.blocks = std::min(ceil_div(n_rows, kArgmaxRowsPerBlock), kManyBlocks),
          .threads = kArgmaxRowsPerBlock * kWarp};
}
// A Best for every segment.
constexpr std::int64_t argmax_scratch_bytes(std::int64_t n_rows, std::int64_t d) {
  return argmax_segments(d) <= 1 ? 0 : n_rows * argmax_segments(d) * static_cast<std::int64_t>(sizeof(Best));
}
static_assert(argmax_segments(151936) == 75 && argmax_segments_plan(1, 151936).blocks == 75);
static_assert(argmax_rows_plan(5, 151936).blocks == 2 && argmax_rows_plan(5, 2048).blocks == 0);
static_assert(argmax_segments_plan(0, 151936).blocks == 0 && argmax_scratch_bytes(2, 4096) == 32);

int launch_argmax(const ArgmaxArgs& args, std::byte* scratch, const Stream& stream);

}  // namespace conclave::cuda
