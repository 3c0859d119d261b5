#include "backends/cuda/long_heads_plan.h"

#include "backends/cuda/launch.cuh"
#include "backends/cuda/lone_heads_cache.cuh"

namespace conclave::cuda {
namespace {

// Positions that a token sees of a cache that is as long.
__device__ __forceinline__ std::int64_t positions_upto(std::int32_t position, std::int64_t context) {
  return max(min(std::int64_t{position} + 1, context), std::int64_t{0});
}

// As LoneCache wants it.
struct WorkerDeal {
  static constexpr int kMost = kLoneOwnUnits;
  int worker;
  std::int64_t context;
  LongDeal of;

  __device__ __forceinline__ void see(std::int32_t position) {
    of = LongDeal(of.workers, positions_upto(position, context));
  }
  __device__ __forceinline__ int unit(int i) const { return of.unit(worker, i); }
  __device__ static int place(int i) { return i % kLongHeld; }
  __device__ static int phase(int i) { return i / kLongHeld % 2; }
};

// Leaves what units come to, a whole range's merged.
struct LongTaker {
  float* acc;  // the lane's elements of the first unit
  float2* sums;
  int n_whole_units;
  bool leaves_sums;
  MergedPiece range;

  __device__ __forceinline__ LongTaker(const LongHeadsArgs& args, int kv_head, const LongDeal& deal) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const std::int64_t row = std::int64_t{kv_head} * args.of.max_units * kLoneGroup + lane / 4;
    acc = args.kept.acc + row * kLoneHeadWidth + warp * 8 * kValueTiles<kLoneHeadWidth> + lane % 4 * 2;
    sums = reinterpret_cast<float2*>(args.kept.sums) + row;
    n_whole_units = deal.n_whole * kRangeUnits;
    leaves_sums = warp == 0 && lane % 4 == 0;
  }
  __device__ __forceinline__ void leave(int unit, const float4& of, float max, float sum) const {
    float* const to = acc + unit * (kLoneGroup * kLoneHeadWidth);
    __stcg(reinterpret_cast<float2*>(to), {of.x, of.y});
    __stcg(reinterpret_cast<float2*>(to + 8), {of.z, of.w});
    if (leaves_sums) __stcg(sums + unit * kLoneGroup, {max, sum});
  }
  __device__ __forceinline__ void take(int unit, const float (&of)[kValueTiles<kLoneHeadWidth>][4], float max,
                                       float sum) {
    const float4 own{of[0][0], of[0][1], of[1][0], of[1][1]};
    if (unit >= n_whole_units) {
      leave(unit, own, max, sum);
      return;
    }
    range.add(max, sum, own);
    if (unit % kRangeUnits < kRangeUnits - 1) return;
    leave(unit - (kRangeUnits - 1), range.acc, range.max, range.sum);
    range = {};
  }
};
static_assert(kValueTiles<kLoneHeadWidth> == 2);

struct LongHeadsShared : LoneUnitsShared {
  std::uint64_t used[kLongHeld];  // nobody reads the unit there any more
};

// The warp that copies: all units of the block, each as soon as there is a place.
__device__ __forceinline__ void bring_all(LoneCache<WorkerDeal>& cache, LongHeadsShared& shared) {
#if __CUDA_ARCH__ >= 900
  cache.find();
  if (cache.context.live == 0) return;
  const int count = cache.deal.of.count(cache.deal.worker);
  cache.bring(0, kLongHeld);
#pragma unroll 1
  for (int i = kLongHeld; i < count; i += kLoneAtOnce) {
    const int n = min(kLoneAtOnce, count - i);
    for (int u = i; u < i + n; ++u) {
      barrier_wait_awake(shared.used + cache.deal.place(u), cache.deal.phase(u - kLongHeld));
    }
    cache.bring(i, n);
  }
#endif
}

__global__ void __launch_bounds__(kLongThreads, 2) long_heads(const __grid_constant__ LongHeadsArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<LongHeadsShared*>(memory + kLongHeld * static_cast<int>(kLoneUnitBytes));
  using Cache = LoneCache<WorkerDeal>;
  const auto tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const auto n_kv_heads = static_cast<unsigned>(args.of.n_kv_heads);
  const auto worker = static_cast<int>(blockIdx.x / n_kv_heads);
  Cache cache{.args = args.of,
              .shared = shared,
              .units = reinterpret_cast<uint4*>(memory),
              .kv_head = static_cast<int>(blockIdx.x % n_kv_heads),
              .deal = {worker, args.of.context, LongDeal(args.workers, 0)}};
  if (tid == kUnitWarps * kWarp) {
    for (int i = 0; i < kLongHeld; ++i) {
      barrier_init(shared.brought + i, 1);
      barrier_init(shared.used + i, kUnitWarps);
    }
    end_barrier_init();
    fetch_map(args.of.k_map);
    fetch_map(args.of.v_map);
  }
  __syncthreads();
  if (warp == kUnitWarps) {
    bring_all(cache, shared);
    return;
  }

  const bool finds = warp >= kLoneHeadWarps;
  LoneOwnHead own(args.of, cache.kv_head);
  if (finds) {
    cache.clear_queries();
    cache.find();
    if (warp == kLoneHeadWarps) cache.leave();
    arrive_with_context();
    if (cache.context.live == 0) return;
  } else {
    own.ask_weight(args.of, shared);
    begin();
    if (!own.make(args.of, shared)) return;
    cache.deal.see(shared.context.position);
  }
  if (worker == 0) {
    // For the second launch: other blocks still read the heads where they are.
    const int n_heads = args.of.n_kv_heads * args.of.group;
    const int at = own.of_q ? cache.kv_head * args.of.group + own.nth : n_heads + cache.kv_head;
    if (own.of_q || own.of_k) {
      store_run<true>(DType::f32, reinterpret_cast<std::byte*>(args.kept.heads + at * kLoneHeadWidth),
                      LoneHead::piece() * kRunLength, 0, own.head.x);
    }
    own.write(args.of, shared.context, cache.kv_head);
  }
  sync_attending();  // queries and context are there

  LongTaker taker(args, cache.kv_head, cache.deal.of);
  const int count = cache.deal.of.count(worker);
#pragma unroll 1
  for (int i = 0; i < count; i += kLoneAtOnce) {
    // Units that are not as they were copied: the token's own is in one, or some of it is not seen.
    bool changed = false;
#pragma unroll
    for (int u = 0; u < kLoneAtOnce; ++u) {
      changed = changed || shared.own_rows[i + u] >= 0 || static_cast<unsigned>(shared.seen[i + u]) % kUnit != 0;
    }
    if (changed) {
#pragma unroll 1
      for (int u = i; u < i + kLoneAtOnce; ++u) {
        if (finds) cache.settle(u);
        if (warp == kLoneHeadWarps - 1) own.put(cache, u);
      }
      sync_attending();
    }
    const bool both = i + 1 < count;
    if (both) {
      attend<kLoneAtOnce>(cache, taker, shared, i);
    } else {
      attend<1>(cache, taker, shared, i);
    }
    __syncwarp();
    if (tid % kWarp == 0) {
      barrier_arrive(shared_address(shared.used + cache.deal.place(i)));
      if (both) barrier_arrive(shared_address(shared.used + cache.deal.place(i + 1)));
    }
  }
#endif
}

// A range that was merged where it was computed.
__device__ __forceinline__ MergedPiece merged_range(const float* acc, const float2* sum) {
  const float2 of = __ldcg(sum);
  return {of.x, of.y, __ldcg(reinterpret_cast<const float4*>(acc))};
}
// The units of a range, in ascending order: `n` of them, the first at `acc` and `sums`.
__device__ __forceinline__ MergedPiece merge_units(const float* acc, const float2* sums, int n) {
  return merge_in_order<MergedPiece>(
      n, [&](int i) { return __ldcg(sums + i * kLoneGroup); },
      [&](int i) { return __ldcg(reinterpret_cast<const float4*>(acc + i * (kLoneGroup * kLoneHeadWidth))); });
}

// All ranges, for the lane's element: as merge_kept() does it. By one warp.
__device__ __forceinline__ float merge_ranges(const float (*accs)[kLongPart], const float2* sums, int n_ranges) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float max = -INFINITY;
  float sum = 0;
  float acc = 0;
#pragma unroll 1
  for (int first = 0; first < n_ranges; first += kWarp) {
    const float2 own = first + lane < n_ranges ? sums[first + lane] : float2{-INFINITY, 0};
    float now = fmaxf(own.x, max);  // the largest up to the lane's range
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const float left = __shfl_up_sync(kAllLanes, now, step);
      if (lane >= step) now = fmaxf(now, left);
    }
    const float left = __shfl_up_sync(kAllLanes, now, 1);
    const Factors own_by{power_of_two((lane == 0 ? max : left) - now), power_of_two(own.x - now)};
    const unsigned sees = __ballot_sync(kAllLanes, own.x != -INFINITY);
    max = __shfl_sync(kAllLanes, now, kWarp - 1);
    const int n = min(n_ranges - first, kWarp);
#pragma unroll 4
    for (int i = 0; i < n; ++i) {
      const Factors by{__shfl_sync(kAllLanes, own_by.before, i), __shfl_sync(kAllLanes, own_by.next, i)};
      const float next_sum = __shfl_sync(kAllLanes, own.y, i);
      if ((sees >> i & 1U) == 0) continue;
      sum = merged(by, sum, next_sum);
      acc = merged(by, acc, accs[first + i][lane]);
    }
  }
  return max == -INFINITY ? 0.0F : acc / sum;
}

__global__ void __launch_bounds__(kTokenThreads) long_merge(const __grid_constant__ LongMergeArgs args) {
  __shared__ __align__(16) float accs[kLongRanges][kLongPart];
  __shared__ float2 sums[kLongRanges];
  constexpr int kPieces = kLongPart / 4;
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
  begin();
  if (!live) return;
#pragma unroll 1
  for (int range = tid / kPieces; range < deal.n_ranges(); range += kTokenThreads / kPieces) {
    const int unit = range * kRangeUnits;
    const float* const acc = kept + unit * (kLoneGroup * kLoneHeadWidth);
    const float2* const sum = kept_sums + unit * kLoneGroup;
    const MergedPiece of =
        range < deal.n_whole ? merged_range(acc, sum) : merge_units(acc, sum, min(deal.n_units - unit, kRangeUnits));
    reinterpret_cast<float4*>(accs[range])[tid % kPieces] = of.acc;
    if (tid % kPieces == 0) sums[range] = {of.max, of.sum};
  }
  const auto element = [&](const LoneHeadRows& rows, int of) -> float& {
    return reinterpret_cast<float*>(rows.data + of * rows.step)[part * kLongPart + lane];
  };
  const auto turned = [&](int of) { return __ldcg(args.kept.heads + of * kLoneHeadWidth + part * kLongPart + lane); };
  if (tid / kWarp == 1) element(args.q, head) = turned(head);
  if (tid / kWarp == 2 && row == 0) element(args.k, kv_head) = turned(args.n_kv_heads * args.group + kv_head);
  __syncthreads();
  if (tid < kWarp) element(args.out, head) = merge_ranges(accs, sums, deal.n_ranges());
}

}  // namespace

int launch_long_heads(const LongHeadsArgs& args, const Stream& stream) {
  const Stream after{.handle = stream.handle, .overlaps = stream.overlaps && args.of.early};
  return launch(long_heads, long_heads_plan(args), after, args);
}

int launch_long_merge(const LongMergeArgs& args, const Stream& stream) {
  return launch(long_merge, long_merge_plan(args), stream, args);
}

}  // namespace conclave::cuda
