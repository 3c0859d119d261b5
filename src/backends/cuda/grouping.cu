// The launches of grouping_plan.h: counts, sums of counts, places. Counts may come from integer atomics, since their
// order does not matter; places never do.
#include "backends/cuda/grouping.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

// How a launch sees the tiles. `counts` [n_experts, tiles]: of each tile, later of the tiles before it. `totals`
// [n_experts].
struct Tiles {
  std::int32_t* counts = nullptr;
  std::int32_t* totals = nullptr;
  std::int64_t tiles = 1;
  std::int64_t tile_pairs = 0;
};

__device__ __forceinline__ std::int64_t pairs_of(const GroupArgs& args) {
  return std::int64_t{args.n_tokens} * args.top_k;
}

__global__ void __launch_bounds__(kTileWarps* kWarp) count_tile(const GroupArgs args, const Tiles at) {
  begin();
  __shared__ std::int32_t counts[kTileExperts];
  for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < args.n_experts; e += kTileWarps * kWarp) {
    counts[e] = 0;
  }
  __syncthreads();
  const std::int64_t tile = blockIdx.x;
  const std::int64_t last = (tile + 1) * at.tile_pairs;
  const std::int64_t end = min(last, std::int64_t{live_pairs(args)});
  for (std::int64_t p = tile * at.tile_pairs + threadIdx.x; p < end; p += kTileWarps * kWarp) {
    const std::int32_t e = expert_of(args, p, end);
    if (e >= 0) atomicAdd(&counts[e], 1);
  }
  __syncthreads();
  for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < args.n_experts; e += kTileWarps * kWarp) {
    at.counts[e * at.tiles + tile] = counts[e];
  }
}

// A warp per expert: each tile's count becomes the sum of the tiles before it.
__global__ void __launch_bounds__(kTileWarps* kWarp) add_tiles(const std::int32_t n_experts, const Tiles at) {
  begin();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t e = std::int64_t{blockIdx.x} * kTileWarps + threadIdx.x / kWarp;
  if (e >= n_experts) return;
  std::int32_t* counts = at.counts + e * at.tiles;
  std::int32_t carried = 0;
  for (std::int64_t first = 0; first < at.tiles; first += kWarp) {
    const std::int32_t own = first + lane < at.tiles ? counts[first + lane] : 0;
    std::int32_t sum = own;
    for (int gap = 1; gap < kWarp; gap *= 2) {
      const std::int32_t below = __shfl_up_sync(0xFFFFFFFFU, sum, gap);
      if (lane >= gap) sum += below;
    }
    if (first + lane < at.tiles) counts[first + lane] = carried + sum - own;
    carried += __shfl_sync(0xFFFFFFFFU, sum, kWarp - 1);
  }
  if (lane == 0) at.totals[e] = carried;
}

// A block per tile places its pairs. kAlone: the one tile is everything, and counted here.
template <bool kAlone>
__global__ void __launch_bounds__(kAlone ? 1024 : kTileWarps* kWarp) place_tile(const GroupArgs args, const Tiles at) {
  begin();
  extern __shared__ std::int32_t words[];
  const std::int32_t n_experts = args.n_experts;
  const auto threads = static_cast<std::int32_t>(blockDim.x);
  const auto thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t warps = threads / kWarp;
  const std::int32_t lane = thread % kWarp;
  std::int32_t* offsets = words;                   // [n_experts + 1]
  std::int32_t* padded = offsets + n_experts + 1;  // [n_experts + 1]
  std::int32_t* counts = padded + n_experts + 1;   // [warps, n_experts]: counts, then cursors
  std::int32_t* own = counts + thread / kWarp * n_experts;

  for (std::int32_t i = thread; i < warps * n_experts; i += threads) counts[i] = 0;
  __syncthreads();

  // The warp's run of pairs, whole steps of 32.
  const std::int64_t tile = blockIdx.x;
  const std::int64_t n_live = live_pairs(args);
  const std::int64_t tile_end = min((tile + 1) * at.tile_pairs, pairs_of(args));
  const std::int64_t run = (at.tile_pairs + threads - 1) / threads * kWarp;
  const std::int64_t begin_pair = min(tile * at.tile_pairs + thread / kWarp * run, tile_end);
  const std::int64_t end_pair = min(begin_pair + run, tile_end);
  for (std::int64_t p = begin_pair + lane; p < end_pair; p += kWarp) {
    const std::int32_t e = expert_of(args, p, n_live);
    if (e >= 0) atomicAdd(&own[e], 1);
  }
  __syncthreads();

  // Each expert's column of counts becomes where its warps begin.
  for (std::int32_t e = thread; e < n_experts; e += threads) {
    std::int32_t sum = kAlone ? 0 : at.counts[e * at.tiles + tile];
    for (std::int32_t first = 0; first < warps; first += kColumn) {
      std::int32_t column[kColumn];
#pragma unroll
      for (int w = 0; w < kColumn; ++w) column[w] = counts[(first + w) * n_experts + e];
#pragma unroll
      for (int w = 0; w < kColumn; ++w) {
        counts[(first + w) * n_experts + e] = sum;
        sum += column[w];
      }
    }
    offsets[e] = kAlone ? sum : at.totals[e];
  }
  __syncthreads();
  block_offsets(n_experts, offsets, [&](std::int32_t e) { return offsets[e]; });
  if (args.sorted_ids != nullptr) padded_offsets(args, offsets, padded);

  for (std::int64_t first = begin_pair; first < end_pair; first += kWarp) {
    const std::int64_t pair = first + lane;
    const std::int32_t e = expert_of(args, pair, min(end_pair, n_live));
    const std::int32_t index = take_places(e, own);
    if (e >= 0) {
      put_pair(args, static_cast<std::int32_t>(pair), e, index, offsets, padded);
    } else if (pair < end_pair && args.pair_row.data != nullptr) {
      at_pair(args.pair_row, static_cast<std::int32_t>(pair), args.top_k) = -1;
    }
  }
  put_rest(args, offsets, padded);
}

// The lists of the path where experts are owned, in scratch memory.
struct OwnedLists {
  std::int32_t* offsets = nullptr;  // [n_experts + 1]
  std::int32_t* padded = nullptr;   // [n_experts + 1]
  std::int32_t* counts = nullptr;   // [n_experts]: counts, then cursors
};

__global__ void __launch_bounds__(kTileWarps* kWarp) clear_counts(const std::int32_t n_experts, const OwnedLists at) {
  begin();
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t e = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; e < n_experts; e += threads) {
    at.counts[e] = 0;
  }
}

__global__ void __launch_bounds__(kTileWarps* kWarp) count_all(const GroupArgs args, const OwnedLists at) {
  begin();
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t end = live_pairs(args);
  for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < end; p += threads) {
    const std::int32_t e = expert_of(args, p, end);
    if (e >= 0) atomicAdd(&at.counts[e], 1);
  }
}

__global__ void __launch_bounds__(1024) add_experts(const GroupArgs args, const OwnedLists at) {
  begin();
  block_offsets(args.n_experts, at.offsets, [&](std::int32_t e) { return at.counts[e]; });
  if (args.sorted_ids != nullptr) padded_offsets(args, at.offsets, at.padded);
  for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < args.n_experts; e += 1024) at.counts[e] = 0;
}

// Every warp sees all pairs in order and places those of its run of experts.
__global__ void __launch_bounds__(kTileWarps* kWarp) place_owned(const GroupArgs args, const OwnedLists at) {
  begin();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t warp = std::int64_t{blockIdx.x} * kTileWarps + threadIdx.x / kWarp;
  const std::int64_t warps = std::int64_t{gridDim.x} * kTileWarps;
  const std::int64_t per_warp = (args.n_experts + warps - 1) / warps;
  const std::int64_t first_expert = warp * per_warp;
  const std::int64_t n_live = live_pairs(args);
  for (std::int64_t first = 0; first < n_live; first += kWarp) {
    std::int32_t e = expert_of(args, first + lane, n_live);
    if (e < first_expert || e >= first_expert + per_warp) e = -1;
    if (__ballot_sync(0xFFFFFFFFU, e >= 0) == 0) continue;
    const std::int32_t index = take_places(e, at.counts);
    if (e >= 0) put_pair(args, static_cast<std::int32_t>(first + lane), e, index, at.offsets, at.padded);
  }
  if (args.pair_row.data != nullptr) {
    const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
    for (std::int64_t p = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; p < pairs_of(args); p += threads) {
      if (expert_of(args, p, n_live) < 0) at_pair(args.pair_row, static_cast<std::int32_t>(p), args.top_k) = -1;
    }
  }
  put_rest(args, at.offsets, at.padded);
}

cudaError_t launch_owned(const GroupArgs& args, const GroupPlan& plan, const Stream& stream) {
  const std::int64_t n = args.n_experts;
  auto* words = reinterpret_cast<std::int32_t*>(args.scratch);
  const OwnedLists at{words, words + n + 1, words + 2 * (n + 1)};
  const LaunchPlan wide{kOwnerBlocks, kTileWarps * kWarp, 0};
  cudaError_t error = launch(clear_counts, wide, stream, args.n_experts, at);
  if (error == cudaSuccess) error = launch(count_all, wide, stream, args, at);
  if (error == cudaSuccess) error = launch(add_experts, LaunchPlan{1, 1024, 0}, stream, args, at);
  if (error == cudaSuccess) error = launch(place_owned, plan.place, stream, args, at);
  return error;
}

}  // namespace

int launch_group(const GroupArgs& args, const Stream& stream) {
  const GroupPlan plan = group_plan(std::int64_t{args.n_tokens} * args.top_k, args.n_experts);
  if (plan.path == GroupPath::owned) return launch_owned(args, plan, stream);
  if (plan.path == GroupPath::alone) {
    return launch(place_tile<true>, plan.place, stream, args, Tiles{.tile_pairs = plan.tile_pairs});
  }
  auto* words = reinterpret_cast<std::int32_t*>(args.scratch);
  const Tiles at{words, words + plan.tiles * args.n_experts, plan.tiles, plan.tile_pairs};
  const LaunchPlan adding{ceil_div(args.n_experts, kTileWarps), kTileWarps * kWarp, 0};
  cudaError_t error = launch(count_tile, LaunchPlan{plan.tiles, kTileWarps * kWarp, 0}, stream, args, at);
  if (error == cudaSuccess) error = launch(add_tiles, adding, stream, args.n_experts, at);
  if (error == cudaSuccess) error = launch(place_tile<false>, plan.place, stream, args, at);
  return error;
}

}  // namespace conclave::cuda
