#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_ops.cuh"
#include "backends/cuda/softmax_plan.h"

namespace conclave::cuda {
namespace {

// Elements past the end of a row take no part: `n` of the run are in it.
__device__ __forceinline__ void raise_max(const Run& run, std::int64_t n, float& max) {
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    if (j < n) max = fmaxf(max, run[j]);  // a NaN is passed over here, and makes the sum NaN below
  }
}

// run = exp(scale * (run - max)): no product of large numbers is rounded, or overflows. Whatever makes a row NaN does
// so here.
__device__ __forceinline__ void take_exp(Run& run, float scale, float max) {
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) run[j] = row_exp(scale * (run[j] - max));
}

__device__ __forceinline__ void add_up(const Run& run, std::int64_t n, float& sum) {
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    if (j < n) sum += run[j];
  }
}

__device__ __forceinline__ void divide_run(Run& run, float sum) {
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) run[j] /= sum;
}

__device__ __forceinline__ float max_row(float value, RowShared& shared) {
  return fold_row<false>(value, shared, [](float a, float b) { return fmaxf(a, b); });
}

// kPasses: runs that a thread keeps of a row; 0: any number, read again for the sum and for the result.
template <int kPasses, bool kVector>
__global__ void __launch_bounds__(kMaxRowThreads) softmax_kernel(const __grid_constant__ SoftmaxArgs args) {
  begin();
  __shared__ RowShared shared;
  const std::int64_t d = args.x.dims[1];
  const std::int64_t n_rows = live_rows(args.live, args.x.dims[0]);
  const std::int64_t first = kRunLength * threadIdx.x;
  const std::int64_t step = kRunLength * blockDim.x;
  for (std::int64_t r = blockIdx.x; r < n_rows; r += gridDim.x) {
    const std::byte* x = row_of(args.x, r);
    std::byte* out = row_of(args.out, r);
    float max = -INFINITY;
    float sum = 0;
    if constexpr (kPasses > 0) {
      Run kept[kPasses];
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        clear_run(kept[p]);
        if (i < d) load_run<kVector>(args.x.type, x, i, d, kept[p]);
        raise_max(kept[p], d - i, max);
      }
      max = max_row(max, shared);
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        take_exp(kept[p], args.scale, max);
        add_up(kept[p], d - (first + p * step), sum);
      }
      sum = sum_row<false>(sum, shared);
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        divide_run(kept[p], sum);
        if (i < d) store_run<kVector>(args.out.type, out, i, d, kept[p]);
      }
    } else {
      Run run;
      for (std::int64_t i = first; i < d; i += step) {
        load_run<kVector>(args.x.type, x, i, d, run);
        raise_max(run, d - i, max);
      }
      max = max_row(max, shared);
      for (std::int64_t i = first; i < d; i += step) {
        load_run<kVector>(args.x.type, x, i, d, run);
        take_exp(run, args.scale, max);
        add_up(run, d - i, sum);
      }
      sum = sum_row<false>(sum, shared);
      for (std::int64_t i = first; i < d; i += step) {
        load_run<kVector>(args.x.type, x, i, d, run);
        take_exp(run, args.scale, max);
        divide_run(run, sum);
        store_run<kVector>(args.out.type, out, i, d, run);
      }
    }
  }
}

template <bool kVector>
cudaError_t launch_with(const SoftmaxArgs& args, const Stream& stream) {
  const std::int64_t d = args.x.dims[1];
  const LaunchPlan plan = softmax_plan(args.x.dims[0], d);
  if (row_passes(d) == 1) return launch(softmax_kernel<1, kVector>, plan, stream, args);
  if (row_passes(d) == kKeptPasses) return launch(softmax_kernel<kKeptPasses, kVector>, plan, stream, args);
  return launch(softmax_kernel<0, kVector>, plan, stream, args);
}

}  // namespace

int launch_softmax(const SoftmaxArgs& args, const Stream& stream) {
  const bool vector = takes_vectors(args.x) && takes_vectors(args.out);
  return vector ? launch_with<true>(args, stream) : launch_with<false>(args, stream);
}

}  // namespace conclave::cuda
