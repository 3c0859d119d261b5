// See fetch_ahead_plan.h. Hopper alone.
#pragma once

#include "backends/cuda/fetch_ahead_plan.h"

namespace conclave::cuda {

#if __CUDA_ARCH__ >= 900
// By a warp of each block.
__device__ __forceinline__ void fetch_ahead(const FetchAhead& ahead) {
  const auto lane = static_cast<int>(threadIdx.x % 32);
  if (lane >= kAheadLanes || ahead.bytes == 0) return;
  const int run = static_cast<int>(blockIdx.x) * kAheadRuns + lane / 2 % kAheadRuns;
  const std::byte* from =
      (lane % 2 == 0 ? ahead.from[0] : ahead.from[1]) + run * ahead.step + lane / (2 * kAheadRuns) * ahead.bytes;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(ahead.bytes) : "memory");
}
#endif

}  // namespace conclave::cuda
