// moe_routing_upload: copies, and the padding of what the host's triple does not reach.
#pragma once

#include <algorithm>

#include "backends/cuda/view.h"

namespace conclave::cuda {

struct FillArgs {
  std::int32_t* to = nullptr;
  std::int64_t count = 0;
  std::int32_t value = 0;
};

inline constexpr int kFillThreads = 256;

constexpr LaunchPlan fill_plan(std::int64_t count) {
  return {std::min<std::int64_t>(ceil_div(count, kFillThreads), 1024), kFillThreads, 0};
}
static_assert(fill_plan(0).blocks == 0 && fill_plan(257).blocks == 2);

// A cudaError_t.
int launch_fill(const FillArgs& args, const Stream& stream);

}  // namespace conclave::cuda
