#include "backends/cuda/attention_few.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/long_heads_plan.h"

namespace conclave::cuda {
namespace {

constexpr int kPieces = kLongPart / 4;                // of 16 bytes, of a block's part of a row
constexpr int kAtOnce = kLongMergeThreads / kPieces;  // ranges
constexpr int kRangeWarps = kLongRanges / kWarp;      // find the factors of ranges, a lane each

struct MergeShared {
  float4 acc[kLongRanges][kPieces];
  float2 sums[kLongRanges];  // maximum, sum
  Factors by[kLongRanges];   // how what has been merged before the range, and the range, are multiplied
  float max;
};

// The units of a range, in ascending order: `n` of them, the first at `acc` and `sums`.
__device__ __forceinline__ MergedPiece merge_units(const float* acc, const float2* sums, int n) {
  return merge_in_order<MergedPiece>(
      n, [&](int i) { return __ldcg(sums + i * kLoneGroup); },
      [&](int i) { return __ldcg(reinterpret_cast<const float4*>(acc + i * (kLoneGroup * kLoneHeadWidth))); });
}

// For all ranges at once, a warp for 32 of them: as if they were merged one after another.
__device__ __forceinline__ void find_factors(MergeShared& shared, int n_ranges) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int own = static_cast<int>(threadIdx.x);
  float before = -INFINITY;  // the largest of the warps before
  for (int i = lane; i < own - lane; i += kWarp) before = fmaxf(before, shared.sums[i].x);
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) before = fmaxf(before, __shfl_xor_sync(kAllLanes, before, step));
  const float max = own < n_ranges ? shared.sums[own].x : -INFINITY;
  float now = fmaxf(max, before);  // the largest up to the lane's range
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const float left = __shfl_up_sync(kAllLanes, now, step);
    if (lane >= step) now = fmaxf(now, left);
  }
  const float left = __shfl_up_sync(kAllLanes, now, 1);
  // A range that has seen nothing is zeros: so multiplied and added, they change no bit.
  const Factors by{power_of_two((lane == 0 ? before : left) - now), power_of_two(max - now)};
  shared.by[own] = max == -INFINITY ? Factors{1, -0.0F} : by;
  if (own == n_ranges - 1) shared.max = now;
}

// All ranges, for the lane's element. By one warp.
__device__ __forceinline__ float merge_ranges(const MergeShared& shared, int n_ranges) {
  const float* const accs = reinterpret_cast<const float*>(shared.acc) + threadIdx.x;
  float sum = 0;
  float acc = 0;
#pragma unroll 8
  for (int i = 0; i < n_ranges; ++i) {
    const Factors by = shared.by[i];
    sum = merged(by, sum, shared.sums[i].y);
    acc = merged(by, acc, accs[i * kLongPart]);
  }
  return n_ranges == 0 || shared.max == -INFINITY ? 0.0F : acc / sum;
}

__global__ void __launch_bounds__(kLongMergeThreads) long_merge(const __grid_constant__ LongMergeArgs args) {
  __shared__ __align__(16) MergeShared shared;
  const auto tid = static_cast<int>(threadIdx.x);
  const int lane = tid % kWarp;
  const auto head = static_cast<int>(blockIdx.x / kLongParts);
  const auto part = static_cast<int>(blockIdx.x % kLongParts);
  const int kv_head = head / args.group;
  const int row = head - kv_head * args.group;
  // The launch before this one writes none of these.
  const LongDeal deal(args.workers, positions_upto(__ldcg(args.position), args.context));
  const bool live = args.live == nullptr || __ldcg(args.live) > 0;
  const std::int64_t first_row = std::int64_t{kv_head} * args.max_units * kLoneGroup + row;
  const float* const kept = args.kept.acc + first_row * kLoneHeadWidth + part * kLongPart + tid % kPieces * 4;
  const auto* const kept_sums = reinterpret_cast<const float2*>(args.kept.sums) + first_row;
  constexpr int kRangeAcc = kRangeUnits * kLoneGroup * kLoneHeadWidth;
  constexpr int kRangeSums = kRangeUnits * kLoneGroup;
  begin();
  if (!live) return;
  // Ranges that were merged where they were computed, then those of which units are left.
  for (int range = tid / kPieces; range < deal.n_whole; range += kAtOnce) {
    copy_16(&shared.acc[range][tid % kPieces], kept + range * kRangeAcc);
  }
  end_copies();
  if (tid < deal.n_whole) shared.sums[tid] = __ldcg(kept_sums + tid * kRangeSums);
#pragma unroll 1
  for (int range = deal.n_whole + tid / kPieces; range < deal.n_ranges(); range += kAtOnce) {
    const MergedPiece of = merge_units(kept + range * kRangeAcc, kept_sums + range * kRangeSums,
                                       min(deal.n_units - range * kRangeUnits, kRangeUnits));
    shared.acc[range][tid % kPieces] = of.acc;
    if (tid % kPieces == 0) shared.sums[range] = {of.max, of.sum};
  }
  const auto element = [&](const LoneHeadRows& rows, int of) -> float& {
    return reinterpret_cast<float*>(rows.data + of * rows.step)[part * kLongPart + lane];
  };
  const auto turned = [&](int of) { return __ldcg(args.kept.heads + of * kLoneHeadWidth + part * kLongPart + lane); };
  if (tid / kWarp == kRangeWarps) element(args.q, head) = turned(head);
  if (tid / kWarp == kRangeWarps + 1 && row == 0) {
    element(args.k, kv_head) = turned(args.n_kv_heads * args.group + kv_head);
  }
  await_copies<0>();
  __syncthreads();
  const int n_ranges = deal.n_ranges();
  if (tid - lane < n_ranges) find_factors(shared, n_ranges);
  if (n_ranges > kWarp) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  if (tid < kWarp) element(args.out, head) = merge_ranges(shared, n_ranges);
}

}  // namespace

int launch_long_merge(const LongMergeArgs& args, const Stream& stream) {
  return launch(long_merge, long_merge_plan(args), stream, args);
}

}  // namespace conclave::cuda
