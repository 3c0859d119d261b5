// Parts of the stable counting sort of pairs by expert: reading pairs, placing a run of them, and the outputs that each
// view wants.
#pragma once

#include "backends/cuda/element.cuh"
#include "backends/cuda/grouping_plan.h"

namespace conclave::cuda {

__device__ __forceinline__ std::int32_t& at_pair(const PairTable& table, std::int32_t pair, std::int32_t top_k) {
  if (table.dense) return reinterpret_cast<std::int32_t*>(table.data)[pair];
  const std::int32_t token = pair / top_k;
  return reinterpret_cast<std::int32_t*>(table.data + token * table.stride)[pair - token * top_k];
}

// Pairs of tokens that count.
__device__ __forceinline__ std::int32_t live_pairs(const GroupArgs& args) {
  return static_cast<std::int32_t>(live_rows(args.live, args.n_tokens)) * args.top_k;
}

// The pair's expert; -1 for an id out of range and for a pair that is not below `end`.
__device__ __forceinline__ std::int32_t expert_of(const GroupArgs& args, std::int64_t pair, std::int64_t end) {
  if (pair >= end) return -1;
  const std::int32_t e = at_pair(args.experts, static_cast<std::int32_t>(pair), args.top_k);
  return e >= 0 && e < args.n_experts ? e : -1;
}

// What is written for pair number `index` of expert e.
__device__ __forceinline__ void put_pair(const GroupArgs& args, std::int32_t pair, std::int32_t e, std::int32_t index,
                                         const std::int32_t* offsets, const std::int32_t* padded) {
  const std::int32_t row = offsets[e] + index;
  if (args.pair_row.data != nullptr) at_pair(args.pair_row, pair, args.top_k) = row;
  if (args.row_pair != nullptr) args.row_pair[row] = args.row_tokens ? pair / args.top_k : pair;
  if (args.ids != nullptr) reinterpret_cast<std::int32_t*>(args.ids + e * args.ids_stride)[index] = pair;
  if (args.sorted_ids != nullptr) args.sorted_ids[padded[e] + index] = args.sorted_pairs ? pair : row;
}

// One step of a warp: 32 pairs in order, lane by lane, e = -1 for none. `cursors[e]` is how many pairs of e came
// before, and belongs to this warp alone. All lanes get their pair's number within its expert.
__device__ __forceinline__ std::int32_t take_places(std::int32_t e, std::int32_t* cursors) {
  const unsigned equal = __match_any_sync(0xFFFFFFFFU, e);
  const unsigned before = equal & ((1U << (threadIdx.x % kWarp)) - 1U);
  std::int32_t index = -1;
  if (e >= 0) index = cursors[e] + __popc(before);
  __syncwarp();
  if (e >= 0 && before == 0) cursors[e] = index + __popc(equal);
  __syncwarp();
  return index;
}

// The exclusive sum over the block's threads in order; `total` is that of all. Every thread calls it.
__device__ __forceinline__ std::int32_t block_exclusive_sum(std::int32_t value, std::int32_t& total) {
  __shared__ std::int32_t of_warp[kWarp + 1];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto inclusive = [&](std::int32_t x) {
    for (int gap = 1; gap < kWarp; gap *= 2) {
      const std::int32_t below = __shfl_up_sync(0xFFFFFFFFU, x, gap);
      if (lane >= gap) x += below;
    }
    return x;
  };
  const std::int32_t sum = inclusive(value);
  if (lane == kWarp - 1) of_warp[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    const std::int32_t own = lane < static_cast<int>(blockDim.x) / kWarp ? of_warp[lane] : 0;
    const std::int32_t all = inclusive(own);
    __syncwarp();
    of_warp[lane] = all - own;
    if (lane == kWarp - 1) of_warp[kWarp] = all;
  }
  __syncthreads();
  total = of_warp[kWarp];
  const std::int32_t result = of_warp[warp] + sum - value;
  __syncthreads();
  return result;
}

// sums[i] = value(0) + .. + value(i - 1) for i = 0 .. n, by the whole block; value(i) may read sums[i].
template <class Value>
__device__ __forceinline__ void block_offsets(std::int32_t n, std::int32_t* sums, Value&& value) {
  std::int32_t carried = 0;
  for (std::int32_t first = 0; first < n; first += static_cast<std::int32_t>(blockDim.x)) {
    const std::int32_t i = first + static_cast<std::int32_t>(threadIdx.x);
    std::int32_t total = 0;
    const std::int32_t before = block_exclusive_sum(i < n ? value(i) : 0, total);
    if (i < n) sums[i] = carried + before;
    carried += total;
  }
  if (threadIdx.x == 0) sums[n] = carried;
  __syncthreads();
}

// Where each expert's rows begin once they are padded to whole blocks.
__device__ __forceinline__ void padded_offsets(const GroupArgs& args, const std::int32_t* offsets,
                                               std::int32_t* padded) {
  const std::int32_t size = args.block_size;
  block_offsets(args.n_experts, padded, [&](std::int32_t e) {
    const std::int32_t rows = offsets[e + 1] - offsets[e];
    return (rows / size + (rows % size != 0 ? 1 : 0)) * size;
  });
}

// The largest count, and the grids made of it: by one block.
__device__ __forceinline__ void put_grids(const GroupArgs& args, const std::int32_t* offsets) {
  __shared__ std::int32_t of_warp[kWarp];
  std::int32_t most = 0;
  for (std::int32_t e = static_cast<std::int32_t>(threadIdx.x); e < args.n_experts;
       e += static_cast<std::int32_t>(blockDim.x)) {
    most = max(most, offsets[e + 1] - offsets[e]);
  }
  most = __reduce_max_sync(0xFFFFFFFFU, most);
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned w = 0; w < blockDim.x / kWarp; ++w) most = max(most, of_warp[w]);
  *args.max_rows = most;
  const std::int64_t blocks = (most + args.nr1 - 1) / args.nr1;
  const auto row_blocks = static_cast<std::uint32_t>(blocks > 1 ? blocks : 1);
  const auto put = [&](std::uint32_t* grid, std::uint32_t columns) {
    grid[0] = row_blocks;
    grid[1] = columns;
    grid[2] = static_cast<std::uint32_t>(args.n_experts);
  };
  put(args.grid_gate_up, args.gate_up_columns);
  put(args.grid_down, args.down_columns);
}

// Blocks and padding of expert e, by one warp; sorted_ids is given.
__device__ __forceinline__ void put_padding(const GroupArgs& args, std::int32_t e, const std::int32_t* offsets,
                                            const std::int32_t* padded) {
  const auto lane = static_cast<std::int32_t>(threadIdx.x % kWarp);
  const std::int32_t n_pairs = args.n_tokens * args.top_k;
  const std::int32_t filled = padded[e] + offsets[e + 1] - offsets[e];
  for (std::int32_t i = filled + lane; i < padded[e + 1]; i += kWarp) args.sorted_ids[i] = n_pairs;
  for (std::int32_t b = padded[e] / args.block_size + lane; b < padded[e + 1] / args.block_size; b += kWarp) {
    args.block_expert[b] = e;
  }
}

// Everything that does not belong to a pair, by all blocks of the grid together. Every thread calls it.
__device__ __forceinline__ void put_rest(const GroupArgs& args, const std::int32_t* offsets,
                                         const std::int32_t* padded) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  const std::int32_t n_experts = args.n_experts;
  const std::int32_t n_pairs = args.n_tokens * args.top_k;
  if (args.offsets != nullptr) {
    for (std::int64_t e = thread; e <= n_experts; e += threads) args.offsets[e] = offsets[e];
  }
  if (args.tpe != nullptr) {
    for (std::int64_t e = thread; e < n_experts; e += threads) args.tpe[e] = offsets[e + 1] - offsets[e];
  }
  if (args.row_pair != nullptr) {
    for (std::int64_t r = offsets[n_experts] + thread; r < n_pairs; r += threads) args.row_pair[r] = -1;
  }
  if (args.sorted_ids != nullptr) {
    for (std::int64_t e = thread / kWarp; e < n_experts; e += threads / kWarp) {
      put_padding(args, static_cast<std::int32_t>(e), offsets, padded);
    }
    const std::int64_t end = padded[n_experts];
    for (std::int64_t i = end + thread; i < args.capacity; i += threads) args.sorted_ids[i] = n_pairs;
    for (std::int64_t b = end / args.block_size + thread; b < args.n_blocks; b += threads) args.block_expert[b] = -1;
    if (thread == 0) *args.n_padded = static_cast<std::int32_t>(end);
  }
  if (args.max_rows != nullptr && blockIdx.x == 0) put_grids(args, offsets);
}

}  // namespace conclave::cuda
