// top_k: rows are cut into segments of one length, a block each, which leave their k best; then a block per row finds
// the best of these.
#pragma once

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

struct TopKArgs {
  View x;       // [n, d]
  View ids;     // [n, k]
  View values;  // [n, k]
  const std::int32_t* live = nullptr;
};

inline constexpr int kTopKThreads = 256;
inline constexpr int kTopKRowThreads = 1024;
inline constexpr std::int64_t kTopKSegment = std::int64_t{kTopKThreads} * kRunLength;
inline constexpr int kTopKMost = 256;  // places: no more than a block has threads
static_assert(kTopKMost <= kTopKThreads && kTopKMost <= kTopKSegment);

constexpr std::int64_t top_k_segments(std::int64_t d) {
  return ceil_div(d, kTopKSegment);
}
constexpr LaunchPlan top_k_segments_plan(std::int64_t n_rows, std::int64_t d) {
  return {.blocks = std::min(n_rows * top_k_segments(d), kManyBlocks), .threads = kTopKThreads};
}
// Nothing where the segments are the rows.
constexpr LaunchPlan top_k_rows_plan(std::int64_t n_rows, std::int64_t d) {
  if (top_k_segments(d) <= 1) return {};
  return {.blocks = std::min(n_rows, kManyBlocks), .threads = kTopKRowThreads};
}
// Keys of the k best of every segment.
constexpr std::int64_t top_k_scratch_bytes(std::int64_t n_rows, std::int64_t d, std::int64_t k) {
  return top_k_segments(d) <= 1 ? 0 : n_rows * top_k_segments(d) * k * 8;
}
static_assert(top_k_segments_plan(1, 151936).blocks == 75 && top_k_rows_plan(3, 151936).blocks == 3);
static_assert(top_k_rows_plan(3, 2048).blocks == 0 && top_k_scratch_bytes(3, 2048, 64) == 0);
static_assert(top_k_scratch_bytes(2, 4096, 64) == 2048 && top_k_segments_plan(0, 9).blocks == 0);

int launch_top_k(const TopKArgs& args, std::byte* scratch, const Stream& stream);

}  // namespace conclave::cuda
