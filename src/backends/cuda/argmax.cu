#include "backends/cuda/argmax_plan.h"
#include "backends/cuda/row_ops.cuh"
#include "backends/cuda/row_segments.cuh"

namespace conclave::cuda {
namespace {

__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  return b.value > a.value || (b.value == a.value && b.index < a.index) ? b : a;
}

// -1 where there is none.
__device__ __forceinline__ std::int32_t id_of(const Best& best) {
  return best.value > -INFINITY ? best.index : -1;
}

// In all lanes.
__device__ __forceinline__ Best best_of_warp(Best best) {
#pragma unroll
  for (int other = kWarp / 2; other > 0; other /= 2) {
    best = better(best,
                  {__shfl_xor_sync(0xFFFFFFFFU, best.value, other), __shfl_xor_sync(0xFFFFFFFFU, best.index, other)});
  }
  return best;
}

// One block per segment of a row. `of_segment` is null where a row has but one: that one's best is the row's.
template <bool kVector>
__global__ void __launch_bounds__(kSegmentThreads)
    argmax_segments_kernel(const __grid_constant__ ArgmaxArgs args, std::int64_t segments, Best* of_segment) {
  begin();
  __shared__ Best of_warp[kSegmentThreads / kWarp];
  const std::int64_t d = args.x.dims[1];
  const std::int64_t n_segments = live_rows(args.live, args.x.dims[0]) * segments;
  for (std::int64_t at = blockIdx.x; at < n_segments; at += gridDim.x) {
    const Divided segment = divide(at, segments);
    const std::int64_t i = segment.rest * kRowSegment + kRunLength * threadIdx.x;
    Best best{-INFINITY, 0};
    if (i < d) {
      Run run;
      load_run<kVector>(args.x.type, row_of(args.x, segment.quotient), i, d, run);
#pragma unroll
      for (int j = 0; j < kRunLength; ++j) {
        if (i + j < d && run[j] > best.value) best = {run[j], static_cast<std::int32_t>(i + j)};  // not for NaN or ties
      }
    }
    best = best_of_warp(best);
    __syncthreads();  // the last segment's readers are done
    if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = best;
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int warp = 1; warp < kSegmentThreads / kWarp; ++warp) best = better(best, of_warp[warp]);
      if (of_segment == nullptr) {
        int_at(args.ids, segment.quotient) = id_of(best);
      } else {
        of_segment[at] = best;
      }
    }
  }
}

// One warp per row.
__global__ void __launch_bounds__(kArgmaxRowsPerBlock* kWarp)
    argmax_rows_kernel(const __grid_constant__ ArgmaxArgs args, std::int64_t segments, const Best* of_segment) {
  begin();
  const std::int64_t n_rows = live_rows(args.live, args.x.dims[0]);
  const std::int64_t first = std::int64_t{blockIdx.x} * kArgmaxRowsPerBlock + threadIdx.x / kWarp;
  for (std::int64_t r = first; r < n_rows; r += std::int64_t{gridDim.x} * kArgmaxRowsPerBlock) {
    Best best{-INFINITY, 0};
    for (std::int64_t s = threadIdx.x % kWarp; s < segments; s += kWarp) {
      best = better(best, of_segment[r * segments + s]);
    }
    best = best_of_warp(best);
    if (threadIdx.x % kWarp == 0) int_at(args.ids, r) = id_of(best);
  }
}

}  // namespace

int launch_argmax(const ArgmaxArgs& args, std::byte* scratch, const Stream& stream) {
  return launch_segments<ArgmaxArgs, Best>(argmax_segments_kernel<true>, argmax_segments_kernel<false>,
                                           argmax_rows_kernel, argmax_rows_plan(args.x.dims[0], args.x.dims[1]), args,
                                           scratch, stream);
}

}  // namespace conclave::cuda
