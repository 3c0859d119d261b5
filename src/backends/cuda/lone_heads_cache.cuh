// Where the keys and values are that a block of lone_heads_plan.h wants, and how they come.
#pragma once

#include "backends/cuda/lone_heads.cuh"

namespace conclave::cuda {

static_assert(kLonePairs <= kLoneCopyWarps * kWarp);

// What a warp that copies knows: lane i of the block's ith unit. `Deal` says which units a block has, and in which of
// its places each of them lies: unit(i), of at most kMost; place(i) with phase(i) of its barrier; and see(position)
// before all of them.
template <class Deal>
struct LoneCache {
  const LoneHeadsArgs& args;
  LoneUnitsShared& shared;
  uint4* units;
  int kv_head;
  Deal deal;
  LoneContext context;
  std::int32_t page;   // where the lane's unit is; -1: nowhere
  std::uint32_t slot;  // where it begins there
  std::int32_t seen;   // positions of it that the token sees

  __device__ static int copier() { return static_cast<int>(threadIdx.x) - kLoneHeadWarps * kWarp; }
  __device__ __forceinline__ uint4* keys(int i) const {
    return units + deal.place(i) * static_cast<int>(kLoneUnitBytes / 16);
  }
  __device__ __forceinline__ uint4* values(int i) const { return keys(i) + kLoneUnitBytes / 32; }

  // Past the nearest cache, which may hold what was there before. Sines and cosines are made while answers are on their
  // way.
  __device__ __forceinline__ void find() {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int64_t seq = __ldcg(args.seq);
    const std::int32_t position = __ldcg(args.position);
    context.live = args.live == nullptr || __ldcg(args.live) > 0 ? 1 : 0;
    const bool is_seq = seq >= 0 && seq < args.lengths.dims[0];
    std::int32_t length = 0;
    if (is_seq) length = __ldcg(&int_at(args.lengths, seq));
    context.position = position;
    deal.see(position);
    // The last lane has the token's own place.
    const std::int64_t at = lane == kWarp - 1 ? position : static_cast<std::int64_t>(deal.unit(lane)) * kUnit;
    const std::uint32_t nth = static_cast<std::uint32_t>(at) / args.kv.page_size;
    page = -1;
    if (seq >= 0 && seq < args.kv.pages.dims[0] && at >= 0 && nth < args.kv.pages.dims[1]) {
      page = __ldcg(&int_at(args.kv.pages, seq, nth));
    }
    if (const int pair = copier(); pair < kLonePairs) {
      const double2 by = turn(static_cast<double>(position) * args.frequencies[pair]);
      shared.turns()[pair] = {static_cast<float>(args.magnitude * by.x), static_cast<float>(args.magnitude * by.y)};
    }
    slot = static_cast<std::uint32_t>(at) - nth * args.kv.page_size;
    if (page >= args.kv.n_pages) page = -1;
    context.own_page = __shfl_sync(kAllLanes, page, kWarp - 1);
    context.own_slot = __shfl_sync(kAllLanes, slot, kWarp - 1);
    const std::int64_t end = min(min(std::int64_t{position} + 1, std::int64_t{length}), args.context);
    context.end = is_seq && end > 0 ? static_cast<std::int32_t>(end) : 0;
    context.n_units = (context.end + kUnit - 1) / kUnit;
    seen = page < 0 ? 0 : min(max(context.end - deal.unit(lane) * kUnit, 0), kUnit);
  }
  // Rows of the tile of queries that no head has.
  __device__ __forceinline__ void clear_queries() const {
    for (int i = copier(); i < 2 * kLoneGroup * kLoneHeadPieces; i += kLoneCopyWarps * kWarp) {
      const int row = i / kLoneHeadPieces % kLoneGroup;
      if (row >= args.group) (&shared.q[0][0])[i] = {0, 0, 0, 0};
    }
  }
  // Of the lane's unit.
  __device__ __forceinline__ int own_row() const {
    const std::uint32_t row = context.own_slot - slot;
    return page == context.own_page && row < static_cast<std::uint32_t>(seen) ? static_cast<int>(row) : -1;
  }
  // For the others. By one warp.
  __device__ __forceinline__ void leave() const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    shared.own_rows[lane] = own_row();
    shared.seen[lane] = seen;
    if (lane == 0) shared.context = context;
  }
  // Keys and values of the block's units from the ith on, four lanes for each. By one warp.
  __device__ __forceinline__ void bring(int first, int n) const {
#if __CUDA_ARCH__ >= 900
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int i = first + lane / 4;
    const bool is = lane < 4 * n && i < Deal::kMost;
    const std::int32_t its_page = __shfl_sync(kAllLanes, page, i);
    const std::uint32_t its_slot = __shfl_sync(kAllLanes, slot, i);
    const int its_seen = __shfl_sync(kAllLanes, seen, i);
    std::uint64_t* const barrier = shared.brought + deal.place(i);
    if (is && lane % 4 == 0) expect_bytes(barrier, its_seen > 0 ? static_cast<int>(kLoneUnitBytes) : 0);
    __syncwarp();
    if (is && its_seen > 0) {
      const bool of_k = lane % 4 < 2;
      copy_lone_half((of_k ? keys(i) : values(i)) + lane % 2 * kLoneHalfPieces, of_k ? args.k_map : args.v_map,
                     lane % 2, kv_head, its_slot, its_page, shared_address(barrier));
    }
#endif
  }
  // Values that the token does not see become zeros, so that nothing of them counts. By all warps that copy.
  __device__ __forceinline__ void settle(int i) const {
    if (i >= Deal::kMost) return;
    const int its_seen = __shfl_sync(kAllLanes, seen, i);
    if (its_seen == 0 || its_seen == kUnit) return;
    await(i);
    uint4* const to = values(i);
    for (int at = its_seen * 8 + copier(); at < kLoneHalfPieces; at += kLoneCopyWarps * kWarp) {
      to[at] = to[at + kLoneHalfPieces] = {0, 0, 0, 0};
    }
  }
  // It is there, where it is not the token's own.
  __device__ __forceinline__ void await(int i) const {
    barrier_wait_awake(shared.brought + deal.place(i), deal.phase(i));
  }
};

// The heads that a block makes: half a warp has one, of queries, or key or value.
struct LoneOwnHead {
  int nth = static_cast<int>(threadIdx.x) / kHalfWarp;
  bool of_q;
  bool of_k = nth == kLoneGroup;
  bool of_v = nth == kLoneGroup + 1;
  std::byte* row;
  Run weight;
  LoneHead head;
  uint4 words{};  // key and value as cached

  __device__ __forceinline__ LoneOwnHead(const LoneHeadsArgs& args, int kv_head) : of_q(nth < args.group) {
    const LoneHeadRows& rows = of_q ? args.q : of_k ? args.k : args.v;
    row = rows.data + (of_q ? kv_head * args.group + nth : kv_head) * rows.step;
  }
  // The weights of the norm, which nobody has to wait for.
  __device__ __forceinline__ void ask_weight(const LoneHeadsArgs& args, LoneUnitsShared& shared) {
    const LoneHeadNorm& norm = of_q ? args.q_norm : args.k_norm;
    const auto tid = static_cast<int>(threadIdx.x);
    clear_run(weight);
    clear_run(head.x);
    if (norm.weight != nullptr && (of_q || of_k)) {
      load_run<true>(norm.type, norm.weight, LoneHead::piece() * kRunLength, 0, weight);
    }
    if (tid < kLoneGroup && tid >= args.group) shared.factor[tid] = 0;
    __syncwarp();
  }
  // By the warps that have heads. False: there is no token.
  __device__ __forceinline__ bool make(const LoneHeadsArgs& args, LoneUnitsShared& shared) {
    if (of_q || of_k || of_v) load_run<true>(DType::f32, row, LoneHead::piece() * kRunLength, 0, head.x);
    LoneHead turned = head;
    if (args.q_norm.weight != nullptr) turned.norm(weight, args.eps);
    await_context();
    if (shared.context.live == 0) return false;
    turned.rotate(shared.turns());
    if (!of_v) head = turned;
    if (threadIdx.x / kWarp < kLoneHeadWarps - 1) {
      head.write_query(args.scale, nth, of_q, shared);
    } else {
      words = head.as_cached();
    }
    return true;
  }
  // The token's own key and value, where they are in a unit. By the warp that has them.
  template <class Deal>
  __device__ __forceinline__ void put(const LoneCache<Deal>& cache, int i) const {
    const int at = i < kLoneOwnUnits ? cache.shared.own_rows[i] : -1;
    if (at < 0) return;
    cache.await(i);
    (of_k ? cache.keys(i) : cache.values(i))[lone_piece_of(at, LoneHead::piece())] = words;
    shared_for_wgmma();  // and for a copy to the same place, later
  }
  // The same to the cache.
  __device__ __forceinline__ void write(const LoneHeadsArgs& args, const LoneContext& context, int kv_head) const {
    if ((!of_k && !of_v) || context.own_page < 0) return;
    const LoneHeadPool& pool = of_k ? args.k_pool : args.v_pool;
    std::byte* const to = pool.data + row_in(pool, context.own_page, context.own_slot, kv_head);
    reinterpret_cast<uint4*>(to)[LoneHead::piece()] = words;
  }
};

// The warps that attend, which may not be all of the block.
__device__ __forceinline__ void sync_attending() {
  asm volatile("bar.sync 0, %0;" ::"n"(kTokenThreads) : "memory");
}

// n of the block's units from the ith on; `taker` gets what each comes to, the lane's elements of a row. All
// threads that attend come here.
template <int n, class Deal, class Taker>
__device__ __forceinline__ void attend(const LoneCache<Deal>& cache, Taker& taker, LoneUnitsShared& shared, int first) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const float factor = shared.factor[lane / 4];
  const uint4* keys[n];
  float y[n][4] = {};
  float scores[n][2];
#pragma unroll
  for (int u = 0; u < n; ++u) {
    keys[u] = cache.keys(first + u);
    cache.await(first + u);
  }
  add_lone_scores<n>(LoneQueries(shared.q), keys, y);
#pragma unroll
  for (int u = 0; u < n; ++u) {
    finish_lone_scores(y[u], factor, shared.seen[first + u], shared.max[u], scores[u]);
  }
  sync_attending();
  float max[n];
#pragma unroll
  for (int u = 0; u < n; ++u) max[u] = leave_lone_weights(scores[u], shared.max[u], shared.weights[u]);
  sync_attending();
#pragma unroll
  for (int u = 0; u < n; ++u) {
    float acc[kValueTiles<kLoneHeadWidth>][4] = {};
    float sums[4] = {};
    add_lone_values(shared.weights[u], cache.values(first + u), acc, sums);
    taker.take(cache.deal.unit(first + u), acc, max[u], sums[0]);
  }
}

}  // namespace conclave::cuda
