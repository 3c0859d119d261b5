// Attention of prompts: ranges put together, by the block that has them all or by the last of several.
#pragma once

#include "backends/cuda/attention_mma.cuh"
#include "backends/cuda/attention_prefill.cuh"
#include "backends/cuda/prefill_bank.cuh"

namespace conclave::cuda {

// Four numbers that are the same in the four lanes of a row: each lane keeps one.
struct Shared4 {
  float own;

  __device__ static int which() { return static_cast<int>(threadIdx.x) % 4; }
  __device__ __forceinline__ void set(float a, float b, float c, float d) {
    own = which() < 2 ? (which() == 0 ? a : b) : (which() == 2 ? c : d);
  }
  __device__ __forceinline__ float get(int i) const {
    return __shfl_sync(kAllLanes, own, static_cast<int>(threadIdx.x) % kWarp / 4 * 4 + i);
  }
};

// A range, or ranges, of the lane's two rows, besides the accumulators.
struct RangeSums {
  float max[2] = {-INFINITY, -INFINITY};  // minus the base; -infinity: nothing is seen
  float sum[2] = {0, 0};
};

// Ends a range, for a new one to begin.
__device__ __forceinline__ RangeSums end_range(PrefillState& state) {
  RangeSums range;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if ((state.seen >> r & 1U) != 0) range.max[r] = -state.base(r);
    range.sum[r] = state.sum[r] + __shfl_xor_sync(kAllLanes, state.sum[r], 1);
    range.sum[r] = range.sum[r] + __shfl_xor_sync(kAllLanes, range.sum[r], 2);
  }
  state.start();
  return range;
}

// Ranges so far, but for their accumulators.
class RangeTotals {
 public:
  // One more; `first`: there was none.
  __device__ __forceinline__ void add(const RangeSums& range, bool first) {
    RangeSums total;
    if (!first) total = {{sums_.get(0), sums_.get(1)}, {sums_.get(2), sums_.get(3)}};
    Factors by[2] = {{1, 0}, {1, 0}};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (range.max[r] == -INFINITY) continue;
      by[r] = merge_factors(total.max[r], range.max[r]);
      total.sum[r] = merged(by[r], total.sum[r], range.sum[r]);
    }
    sums_.set(total.max[0], total.max[1], total.sum[0], total.sum[1]);
    by_.set(by[0].before, by[0].next, by[1].before, by[1].next);
  }
  // Its accumulators to those before, which the thread has at `own`, 128 words apart. The sums are left in `acc`.
  template <int d>
  __device__ __forceinline__ void add_to(const float4* own, bool first, float (&acc)[d / 2]) const {
    const Factors by[2] = {{by_.get(0), by_.get(1)}, {by_.get(2), by_.get(3)}};
#pragma unroll
    for (int n = 0; n < d / 8; ++n) {
      const float4 four = first ? float4{0, 0, 0, 0} : own[n * kPrefillGroup];
      acc[4 * n] = merged(by[0], four.x, acc[4 * n]);
      acc[4 * n + 1] = merged(by[0], four.y, acc[4 * n + 1]);
      acc[4 * n + 2] = merged(by[1], four.z, acc[4 * n + 2]);
      acc[4 * n + 3] = merged(by[1], four.w, acc[4 * n + 3]);
    }
  }
  __device__ __forceinline__ float max(int r) const {
    return sums_.get(r);
  }
  __device__ __forceinline__ float sum(int r) const {
    return sums_.get(2 + r);
  }

 private:
  Shared4 sums_{};
  Shared4 by_{};
};

// No zero with a sign: whether it has one may depend on units of which nothing is seen.
__device__ __forceinline__ float attended(float acc, float max, float by) {
  return max == -INFINITY ? 0.0F : acc * by + 0.0F;
}

// A range to scratch, without its accumulators. `row`: the first of the lane's two.
__device__ __forceinline__ void put_sums(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows, int row,
                                         std::int64_t range, const RangeSums& sums) {
  if (threadIdx.x % 4 != 0) return;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= rows.n) continue;
    const std::int64_t at = kept_at(args, kept, rows, row + 8 * r, range);
    *reinterpret_cast<float2*>(kept.sums + at * 2) = {sums.max[r], sums.sum[r]};
  }
}
// The accumulators.
template <int d>
__device__ __forceinline__ void put_acc(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows, int row,
                                        std::int64_t range, const float (&acc)[d / 2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + 8 * r >= rows.n) continue;
    float* to = kept.acc + kept_at(args, kept, rows, row + 8 * r, range) * d + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < d / 8; ++n) {
      *reinterpret_cast<float2*>(to + 8 * n) = {acc[4 * n + 2 * r], acc[4 * n + 2 * r + 1]};
    }
  }
}

// All ranges of rows `first` to `end` - 1 from scratch, in ascending order, by a warpgroup.
template <int d>
__device__ __forceinline__ void merge_put_ranges(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows,
                                                 int first, int end, int n_ranges) {
  constexpr int kFours = d / 4;
  constexpr int kAhead = 4;
  const int n_all = (end - first) * kFours;
#pragma unroll 1
  for (int from = 0; from < n_all; from += kPrefillGroup) {  // warps stay together
    const int n = from + static_cast<int>(threadIdx.x) % kPrefillGroup;
    const int row = first + min(n, n_all - 1) / kFours;
    const int at_d = n % kFours * 4;
    const std::int64_t at = kept_at(args, kept, rows, row, 0);
    float max = -INFINITY;
    float sum = 0;
    float4 acc{0, 0, 0, 0};
#pragma unroll 1
    for (int range = 0; range < n_ranges; range += kAhead) {
      float2 sums[kAhead];
      float4 fours[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const std::int64_t next = at + min(range + i, n_ranges - 1);
        sums[i] = __ldcg(reinterpret_cast<const float2*>(kept.sums + next * 2));
        fours[i] = __ldcg(reinterpret_cast<const float4*>(kept.acc + next * d + at_d));
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (range + i >= n_ranges || sums[i].x == -INFINITY) continue;
        const Factors by = merge_factors(max, sums[i].x);
        sum = merged(by, sum, sums[i].y);
        acc = {merged(by, acc.x, fours[i].x), merged(by, acc.y, fours[i].y), merged(by, acc.z, fours[i].z),
               merged(by, acc.w, fours[i].w)};
      }
    }
    if (n >= n_all) continue;
    std::byte* out = row_of(args.out, rows.token(row), rows.head(row));
    const float by = 1.0F / sum;
    const float y[4] = {attended(acc.x, max, by), attended(acc.y, max, by), attended(acc.z, max, by),
                        attended(acc.w, max, by)};
#pragma unroll
    for (int i = 0; i < 4; ++i) store_float(args.out.type, out, at_d + i, y[i]);
    if (args.bank.bf16 != nullptr) put_bank_4(bank_row(args.bank, rows.token(row)), rows.head(row) * d + at_d, y);
  }
}

}  // namespace conclave::cuda
