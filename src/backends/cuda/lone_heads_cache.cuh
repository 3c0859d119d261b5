// Where the keys and values are that a block of lone_heads_plan.h wants, and how they come.
#pragma once

#include "backends/cuda/lone_heads.cuh"

namespace conclave::cuda {

static_assert(kLoneOwnUnits <= 2 * kLoneHeldUnits);

// What a warp that copies knows: lane i of the block's ith unit.
struct LoneCache {
  const LoneHeadsArgs& args;
  LoneHeadsShared& shared;
  uint4* units;
  int rank;
  int kv_head;
  int n_held;
  LoneContext context;
  std::int32_t page;   // where the lane's unit is; -1: nowhere
  std::uint32_t slot;  // where it begins there

  __device__ static int copier() { return static_cast<int>(threadIdx.x) - kLoneHeadWarps * kWarp; }
  __device__ __forceinline__ int unit_of(int i) const { return rank + i * kLoneCluster; }
  __device__ __forceinline__ int held(int i) const { return i < n_held ? i : i - n_held; }
  __device__ __forceinline__ uint4* keys(int i) const {
    return units + held(i) * static_cast<int>(kLoneUnitBytes / 16);
  }
  __device__ __forceinline__ uint4* values(int i) const { return keys(i) + kLoneUnitBytes / 32; }

  // Past the nearest cache, which may hold what was there before. `meanwhile(position)`: done while answers are on
  // their way.
  template <class Meanwhile>
  __device__ __forceinline__ void find(const Meanwhile& meanwhile) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const std::int64_t seq = __ldcg(args.seq);
    const std::int32_t position = __ldcg(args.position);
    context.live = args.live == nullptr || __ldcg(args.live) > 0 ? 1 : 0;
    const bool is_seq = seq >= 0 && seq < args.lengths.dims[0];
    std::int32_t length = 0;
    if (is_seq) length = __ldcg(&int_at(args.lengths, seq));
    // The last lane has the token's own place.
    const std::int64_t at = lane == kWarp - 1 ? position : static_cast<std::int64_t>(unit_of(lane)) * kUnit;
    const std::uint32_t nth = static_cast<std::uint32_t>(at) / args.kv.page_size;
    page = -1;
    if (seq >= 0 && seq < args.kv.pages.dims[0] && at >= 0 && nth < args.kv.pages.dims[1]) {
      page = __ldcg(&int_at(args.kv.pages, seq, nth));
    }
    meanwhile(position);
    slot = static_cast<std::uint32_t>(at) - nth * args.kv.page_size;
    if (page >= args.kv.n_pages) page = -1;
    context.own_page = __shfl_sync(kAllLanes, page, kWarp - 1);
    context.own_slot = __shfl_sync(kAllLanes, slot, kWarp - 1);
    const std::int64_t seen = min(min(std::int64_t{position} + 1, std::int64_t{length}), args.context);
    context.end = is_seq && seen > 0 ? static_cast<std::int32_t>(seen) : 0;
    context.n_units = (context.end + kUnit - 1) / kUnit;
  }
  // Of the lane's unit.
  __device__ __forceinline__ int seen() const {
    const int unit = unit_of(static_cast<int>(threadIdx.x) % kWarp);
    return page < 0 ? 0 : min(max(context.end - unit * kUnit, 0), kUnit);
  }
  __device__ __forceinline__ int own_row() const {
    const std::uint32_t row = context.own_slot - slot;
    return page == context.own_page && row < static_cast<std::uint32_t>(seen()) ? static_cast<int>(row) : -1;
  }
  // For the others. By one warp.
  __device__ __forceinline__ void leave() const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    if (lane < kLoneOwnUnits) {
      shared.own_rows[lane] = own_row();
      shared.seen[lane] = seen();
    }
    if (lane == 0) shared.context = context;
  }
  // Keys and values of the block's units from the ith on, four lanes for each. By one warp.
  __device__ __forceinline__ void bring(int first, int n) const {
#if __CUDA_ARCH__ >= 900
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int i = first + lane / 4;
    const bool is = lane < 4 * n && i < kLoneOwnUnits;
    const std::int32_t its_page = __shfl_sync(kAllLanes, page, i);
    const std::uint32_t its_slot = __shfl_sync(kAllLanes, slot, i);
    const int its_seen = __shfl_sync(kAllLanes, seen(), i);
    std::uint64_t* const barrier = shared.brought + held(i);
    if (is && lane % 4 == 0) expect_bytes(barrier, its_seen > 0 ? static_cast<int>(kLoneUnitBytes) : 0);
    __syncwarp();
    if (is && its_seen > 0) {
      const bool of_k = lane % 4 < 2;
      copy_lone_half((of_k ? keys(i) : values(i)) + lane % 2 * kLoneHalfPieces, of_k ? args.k_map : args.v_map,
                     lane % 2, kv_head, its_slot, its_page, barrier);
    }
#endif
  }
  // Values that the token does not see become zeros, so that nothing of them counts. By all warps that copy.
  __device__ __forceinline__ void settle(int i) const {
    const int its_seen = __shfl_sync(kAllLanes, seen(), i);
    if (its_seen == 0 || its_seen == kUnit) return;
    await(i);
    uint4* const to = values(i);
    for (int at = its_seen * 8 + copier(); at < kLoneHalfPieces; at += kLoneCopyWarps * kWarp) {
      to[at] = to[at + kLoneHalfPieces] = {0, 0, 0, 0};
    }
  }
  // It is there, where it is not the token's own.
  __device__ __forceinline__ void await(int i) const {
    barrier_wait(shared.brought + held(i), i < n_held ? 0 : 1);
  }
};

}  // namespace conclave::cuda
