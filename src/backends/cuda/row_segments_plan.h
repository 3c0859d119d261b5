// Long rows cut into segments of one length, a block each, so that one row of a vocabulary keeps many blocks busy; what
// the segments leave is put together by a second launch, where a row has more than one.
#pragma once

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

inline constexpr int kSegmentThreads = 256;
inline constexpr std::int64_t kRowSegment = std::int64_t{kSegmentThreads} * kRunLength;

constexpr std::int64_t row_segments(std::int64_t d) {
  return ceil_div(d, kRowSegment);
}
constexpr LaunchPlan row_segments_plan(std::int64_t n_rows, std::int64_t d) {
  return {.blocks = std::min(n_rows * row_segments(d), kManyBlocks), .threads = kSegmentThreads};
}
// Of scratch, where a segment leaves so many bytes: none where the segments are the rows.
constexpr std::int64_t row_segments_bytes(std::int64_t n_rows, std::int64_t d, std::int64_t of_each) {
  return row_segments(d) <= 1 ? 0 : n_rows * row_segments(d) * of_each;
}
static_assert(row_segments(151936) == 75 && row_segments_plan(1, 151936).blocks == 75);
static_assert(row_segments_plan(0, 151936).blocks == 0 && row_segments_bytes(2, 4096, 8) == 32);
static_assert(row_segments_bytes(3, 2048, 512) == 0);

}  // namespace conclave::cuda
