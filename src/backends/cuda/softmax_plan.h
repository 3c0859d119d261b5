// softmax: a block per row. A row of up to 8192 elements is read once.
#pragma once

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

struct SoftmaxArgs {
  View x;  // [n, d]
  View out;
  const std::int32_t* live = nullptr;
  float scale = 1;
};

constexpr LaunchPlan softmax_plan(std::int64_t n_rows, std::int64_t d) {
  if (n_rows == 0 || d == 0) return {};
  return {.blocks = std::min(n_rows, kManyBlocks), .threads = row_threads(d)};
}
static_assert(softmax_plan(5, 128).blocks == 5 && softmax_plan(5, 128).threads == 32);

int launch_softmax(const SoftmaxArgs& args, const Stream& stream);

}  // namespace conclave::cuda
