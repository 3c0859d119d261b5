// The results of a row's units, merged in ascending order: a block has a row and a slice of d_v, a thread one element.
#include "backends/cuda/attention_rows.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

constexpr int kAhead = 16;  // units asked for at once

struct Factors {
  float before;  // of what has been merged so far
  float unit;    // of the unit; negative: the row sees nothing in it
  float sum;     // the unit's
};

// What the next kMergeThreads units are merged with, thread i the ith; `max` moves on to their maximum.
__device__ Factors unit_factors(const float* unit, bool there, float& max, float* warp_max) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const float own = there ? unit[0] : -INFINITY;
  float upto = own;  // the largest up to this unit
  for (int step = 1; step < kWarp; step *= 2) {
    const float left = __shfl_up_sync(kAllLanes, upto, step);
    if (lane >= step) upto = fmaxf(upto, left);
  }
  float before = __shfl_up_sync(kAllLanes, upto, 1);
  if (lane == 0) before = -INFINITY;
  if (lane == kWarp - 1) warp_max[warp] = upto;
  __syncthreads();
  float base = max;
  for (int w = 0; w < kMergeThreads / kWarp; ++w) {
    if (w < warp) base = fmaxf(base, warp_max[w]);
    max = fmaxf(max, warp_max[w]);
  }
  before = fmaxf(before, base);
  const float now = fmaxf(before, own);
  if (own == -INFINITY) return {1.0F, -1.0F, 0.0F};
  return {softmax_weight(before - now), softmax_weight(own - now), unit[1]};
}

__global__ void __launch_bounds__(kMergeThreads) merge_kernel(const __grid_constant__ AttentionArgs args) {
  begin();
  __shared__ Factors factors[kMergeThreads];
  __shared__ float warp_max[kMergeThreads / kWarp];
  const int tid = static_cast<int>(threadIdx.x);
  const std::int64_t n_heads = args.q.dims[1];
  const std::int64_t d_v = args.out.dims[2];
  const std::int64_t slices = (d_v + kSlice - 1) / kSlice;
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);
  for (std::int64_t item = blockIdx.x; item < n_live * n_heads * slices; item += gridDim.x) {
    const std::int64_t row = item / slices;
    const std::int64_t d = item % slices * kSlice + tid;
    const std::int64_t n_units = (visible_end(args, row / n_heads) + kUnit - 1) / kUnit;
    if (args.first_unit > 0 && n_units <= args.first_unit) continue;  // an earlier pass has written it
    const std::int64_t left = n_units - args.first_unit;
    const std::int64_t count = left < args.n_kept ? left : args.n_kept;
    const float* sums = args.unit_sum + row * args.n_kept * 2;
    const float* accs = args.unit_acc + row * args.n_kept * d_v + d;

    float max = -INFINITY;
    float sum = 0;
    float acc = 0;
    if (args.first_unit > 0) {
      max = args.state_sum[item * 2];
      sum = args.state_sum[item * 2 + 1];
      if (d < d_v) acc = args.state_acc[row * d_v + d];
    }
    for (std::int64_t from = 0; from < count; from += kMergeThreads) {
      const int n = static_cast<int>(count - from < kMergeThreads ? count - from : kMergeThreads);
      __syncthreads();  // nobody still reads the factors before these
      factors[tid] = unit_factors(sums + (from + tid) * 2, tid < n, max, warp_max);
      __syncthreads();
      for (int i = 0; i < n; i += kAhead) {
        float unit[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          const bool wanted = i + k < n && d < d_v && !(factors[i + k].unit < 0);
          unit[k] = wanted ? accs[(from + i + k) * d_v] : 0.0F;
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
          if (i + k >= n) continue;
          const Factors by = factors[i + k];
          if (by.unit < 0) continue;
          sum = fmaf(by.sum, by.unit, sum * by.before);
          acc = fmaf(unit[k], by.unit, acc * by.before);
        }
      }
    }
    if (left > args.n_kept) {
      if (d < d_v) args.state_acc[row * d_v + d] = acc;
      __syncthreads();  // all have read the state before
      if (tid == 0) {
        args.state_sum[item * 2] = max;
        args.state_sum[item * 2 + 1] = sum;
      }
    } else if (d < d_v) {
      const float value = max == -INFINITY ? 0.0F : acc / sum;
      store_float(args.out.type, row_of(args.out, row / n_heads, row % n_heads), d, value);
    }
  }
}

}  // namespace

int launch_attention_merge(const AttentionArgs& args, const Stream& stream) {
  const AttentionSizes sizes{.n_tokens = args.q.dims[0],
                             .n_heads = args.q.dims[1],
                             .n_kv_heads = args.k.dims[2],
                             .d_v = args.out.dims[2],
                             .context = args.context};
  return launch(merge_kernel, attention_merge_launch(sizes), stream, args);
}

}  // namespace conclave::cuda
