// argmax: a block finds the best of a segment, then a warp per row that of its segments.
#pragma once

#include "backends/cuda/row_segments_plan.h"

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

inline constexpr int kArgmaxRowsPerBlock = 4;

// Nothing where the segments are the rows.
constexpr LaunchPlan argmax_rows_plan(std::int64_t n_rows, std::int64_t d) {
  if (row_segments(d) <= 1) return {};
  return {.blocks = std::min(ceil_div(n_rows, kArgmaxRowsPerBlock), kManyBlocks),
          .threads = kArgmaxRowsPerBlock * kWarp};
}
constexpr std::int64_t argmax_scratch_bytes(std::int64_t n_rows, std::int64_t d) {
  return row_segments_bytes(n_rows, d, sizeof(Best));
}
static_assert(argmax_rows_plan(5, 151936).blocks == 2 && argmax_rows_plan(5, 2048).blocks == 0);
static_assert(argmax_scratch_bytes(2, 4096) == 32);

int launch_argmax(const ArgmaxArgs& args, std::byte* scratch, const Stream& stream);

}  // namespace conclave::cuda
