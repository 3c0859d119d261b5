// top_k: a block leaves the k best of a segment, then a block per row finds the best of these.
#pragma once

#include "backends/cuda/row_segments_plan.h"

namespace conclave::cuda {

struct TopKArgs {
  View x;       // [n, d]
  View ids;     // [n, k]
  View values;  // [n, k]
  const std::int32_t* live = nullptr;
};

inline constexpr int kTopKRowThreads = 1024;
inline constexpr int kTopKMost = 256;  // places: no more than a block has threads
static_assert(kTopKMost <= kSegmentThreads && kTopKMost <= kRowSegment);

// Nothing where the segments are the rows.
constexpr LaunchPlan top_k_rows_plan(std::int64_t n_rows, std::int64_t d) {
  if (row_segments(d) <= 1) return {};
  return {.blocks = std::min(n_rows, kManyBlocks), .threads = kTopKRowThreads};
}
// Keys of the k best of every segment.
constexpr std::int64_t top_k_scratch_bytes(std::int64_t n_rows, std::int64_t d, std::int64_t k) {
  return row_segments_bytes(n_rows, d, k * 8);
}
static_assert(top_k_rows_plan(3, 151936).blocks == 3 && top_k_rows_plan(3, 2048).blocks == 0);
static_assert(top_k_scratch_bytes(2, 4096, 64) == 2048 && top_k_scratch_bytes(3, 2048, 64) == 0);

int launch_top_k(const TopKArgs& args, std::byte* scratch, const Stream& stream);

}  // namespace conclave::cuda
