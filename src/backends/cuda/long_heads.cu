#include "backends/cuda/launch.cuh"
#include "backends/cuda/long_units.cuh"

namespace conclave::cuda {
namespace {

// As LoneCache wants it.
struct WorkerDeal {
  int worker;
  std::int64_t context;
  LongDeal of;

  __device__ __forceinline__ void see(std::int32_t position) {
    of = LongDeal(of.workers, positions_upto(position, context));
  }
  __device__ __forceinline__ int unit(int i) const { return of.unit(worker, i); }
};

// What the others are to know of the block's units, and the first keys and values, which earlier steps left: they come
// before the queries are there. By one warp that has found them.
__device__ __forceinline__ void bring_first(const LoneCache<WorkerDeal>& cache, LongHeadsShared& shared) {
#if __CUDA_ARCH__ >= 900
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int n = lane / 2;  // keys of the block's unit n / 2, or its values: two lanes have them
  const int half = lane % 2;
  const int count = cache.deal.of.count(cache.deal.worker);
  const std::int32_t page = __shfl_sync(kAllLanes, cache.page, n / 2);
  const std::uint32_t slot = __shfl_sync(kAllLanes, cache.slot, n / 2);
  const bool seen = __shfl_sync(kAllLanes, cache.seen, n / 2) > 0;
  const bool is = n < min(2 * count, kLongSlots);
  const unsigned barrier = shared_address(shared.full + n % kLongSlots);
  if (is && half == 0) expect_bytes(barrier, seen ? static_cast<int>(kLongSlotBytes) : 0);
  __syncwarp();
  if (is && seen) {
    copy_lone_half(cache.units + n * kLongSlotPieces + half * kLoneHalfPieces,
                   n % 2 == 0 ? cache.args.k_map : cache.args.v_map, half, cache.kv_head, slot, page, barrier);
  }
  cache.leave();
  shared.pages[lane] = cache.page;
  shared.slots[lane] = cache.slot;
  if (lane != 0) return;
  shared.count = count;
  const LongDeal& deal = cache.deal.of;
  const int worker = cache.deal.worker;
  shared.n_whole = deal.in_ranges(worker);
  shared.step = deal.workers - deal.more;
  shared.first = deal.unit(worker, shared.n_whole) - shared.n_whole * shared.step;
#endif
}

// Where the lane's elements of a KV head's first unit go.
struct LongOut {
  float* acc;
  float2* sums;
  bool leaves_sums;

  __device__ __forceinline__ LongOut(const LongHeadsArgs& args, int kv_head) {
    const unsigned lane = threadIdx.x % kWarp;
    const unsigned part = threadIdx.x / kWarp % kLongTeam;
    const std::int64_t row = std::int64_t{kv_head} * args.of.max_units * kLoneGroup + lane / 4;
    acc = args.kept.acc + row * kLoneHeadWidth + part * kTeamValues * 8 + lane % 4 * 2;
    sums = reinterpret_cast<float2*>(args.kept.sums) + row;
    leaves_sums = part == 0 && lane % 4 == 0;
    asm volatile("" : "+l"(acc), "+l"(sums));  // now
  }
  // What a unit comes to, or a range in the place of its first unit.
  __device__ __forceinline__ void leave(int unit, const LongResult& of) const {
    float* const to = acc + unit * (kLoneGroup * kLoneHeadWidth);
#pragma unroll
    for (int n = 0; n < kTeamValues; ++n) __stcg(reinterpret_cast<float2*>(to + n * 8), of.acc[n]);
    if (leaves_sums) __stcg(sums + unit * kLoneGroup, {of.max, of.sum});
  }
};

__global__ void __launch_bounds__(kTokenThreads, 2) long_heads(const __grid_constant__ LongHeadsArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<LongHeadsShared*>(memory + kLongSlots * static_cast<int>(kLongSlotBytes));
  const auto tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const auto n_kv_heads = static_cast<unsigned>(args.of.n_kv_heads);
  const auto worker = static_cast<int>(blockIdx.x / n_kv_heads);
  LoneCache<WorkerDeal> cache{.args = args.of,
                              .shared = shared,
                              .units = reinterpret_cast<uint4*>(memory),
                              .kv_head = static_cast<int>(blockIdx.x % n_kv_heads),
                              .deal = {worker, args.of.context, LongDeal(args.workers, 0)}};
  constexpr int kFirst = kUnitWarps - 1;  // the warp that brings the first units: it has no sines and cosines to make
  static_assert((kFirst - kLoneHeadWarps) * kWarp >= kLonePairs);
  if (tid == kFirst * kWarp) {
    for (std::uint64_t& full : shared.full) barrier_init(&full, 1);
    for (std::int32_t& turn : shared.turn) turn = 0;
    end_barrier_init();
    fetch_map(args.of.k_map);
    fetch_map(args.of.v_map);
  }
  __syncthreads();

  const LongWorker attending(args.of, shared, cache.units, cache.kv_head);
  const LongOut out(args, cache.kv_head);
  LoneOwnHead own(args.of, cache.kv_head);
  if (warp >= kLoneHeadWarps) {
    cache.find();
    if (warp == kFirst && cache.context.live != 0) bring_first(cache, shared);
    if (warp == kFirst && cache.context.live == 0) cache.leave();
    cache.clear_queries();
    arrive_with_context();
    if (cache.context.live == 0) return;
  } else {
    own.ask_weight(args.of, shared);
    begin();
    if (!own.make(args.of, shared)) return;
    if (warp == kLoneHeadWarps - 1) shared.own[own.of_k ? 0 : 1][LoneHead::piece()] = own.words;
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

  unsigned phase = 0;
#pragma unroll 1
  for (int i = static_cast<int>(attending.team); i < shared.count; i += kLongTeams, phase ^= 1U) {
    LongResult of;
    attending.attend(i, phase, of);
    int unit = shared.first + i * shared.step;
    if (i < shared.n_whole) {
      attending.add_to_range(i, of);
      if (i % kRangeUnits < kRangeUnits - 1) continue;
      unit = (worker + i / kRangeUnits * args.workers) * kRangeUnits;
    }
    out.leave(unit, of);
  }
#endif
}

}  // namespace

int launch_long_heads(const LongHeadsArgs& args, const Stream& stream) {
  const Stream after{.handle = stream.handle, .overlaps = stream.overlaps && args.of.early};
  return launch(long_heads, long_heads_plan(args), after, args);
}

}  // namespace conclave::cuda
