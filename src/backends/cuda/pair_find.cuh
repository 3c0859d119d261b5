// Pairs of the same expert as lists, and which strips of which lists a block has (pair_lists_plan.h).
#pragma once

#include "backends/cuda/element.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/pair_lists_plan.h"
#include "backends/cuda/quarter_unit.cuh"

namespace conclave::cuda {

// A block's part of a list.
struct ListPart {
  std::int32_t expert;
  std::int32_t rows;
  std::int32_t pair[kListRows];
  std::int32_t first;  // strip
  std::int32_t count;  // of strips
  std::int32_t bytes;  // from the first strip to the matrix's end
  const std::byte* w;  // from the first strip on
  const std::byte* up;
};

struct PairShared {
  ListPart parts[kBlockLists];
  std::int32_t costs[kOnePairs / kWarp];
  std::int32_t next;  // strip that nobody has
  std::int32_t strip[kPairWarps][kPairSlots];
  std::uint64_t arrived[kPairWarps][2 * kPairSlots];
};

// Finds a block's parts: strips of all lists one after another, the same cost for each block. `masks`: zeros, 128 bits
// for each expert.
__device__ __forceinline__ void find_parts(const OneRowArgs& args, const PairCut& cut, uint4* masks,
                                           PairShared& shared) {
  const int pair = static_cast<int>(threadIdx.x);
  const int lane = pair % kWarp;
  const int warp = pair / kWarp;
  const int named = pair < args.rows ? __ldcg(args.experts + pair) : -1;
  const int live = args.live == nullptr ? args.rows : __ldcg(args.live) * args.top_k;
  const int expert = pair < live && named < args.n_experts ? named : -1;
  if (expert >= 0) atomicOr(reinterpret_cast<unsigned*>(masks + expert) + warp, 1U << lane);
  __syncthreads();
  unsigned mates[kOnePairs / kWarp] = {};  // of the same expert: from this pair on
  int before = 0;
  int rows = 0;
  if (expert >= 0) {
    const uint4 all = masks[expert];
#pragma unroll
    for (int i = 0; i < kOnePairs / kWarp; ++i) {
      const auto word = static_cast<unsigned>(word_of(all, i));
      const unsigned lower = i < warp ? ~0U : i == warp ? (1U << lane) - 1 : 0U;
      before += __popc(word & lower);
      mates[i] = word & ~lower;
      rows += __popc(mates[i]);
    }
    rows = before % kListRows == 0 ? min(rows, kListRows) : 0;  // others are in the list of an earlier pair
  }
  const int each = cut.cost.strip + rows * cut.cost.row;
  const int cost = rows > 0 ? cut.strips * each : 0;
  int end = cost;
#pragma unroll
  for (int step = 1; step < kWarp; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, end, step);
    if (lane >= step) end += other;
  }
  if (lane == kWarp - 1 && warp < kOnePairs / kWarp) shared.costs[warp] = end;
  if (threadIdx.x < kBlockLists) shared.parts[threadIdx.x].count = 0;
  __syncthreads();
  int total = 0;
#pragma unroll
  for (int i = 0; i < kOnePairs / kWarp; ++i) {
    if (i == warp) end += total;
    total += shared.costs[i];
  }
  // Where the costs of a block begin, and a list's strips: the same for the block before, which ends there.
  const float share = static_cast<float>(total) * (1.0F / kPairBlocks);
  const auto begin_of = [&](int block) {
    return block == kPairBlocks ? total : min(total, static_cast<int>(static_cast<float>(block) * share));
  };
  const float by_each = 1.0F / static_cast<float>(each);
  const auto strip_of = [&](int at) {
    return at <= 0 ? 0 : at >= cost ? cut.strips : min(cut.strips, static_cast<int>(static_cast<float>(at) * by_each));
  };
  const auto block = static_cast<int>(blockIdx.x);
  const int from = begin_of(block) - (end - cost);  // of this list
  const int to = begin_of(block + 1) - (end - cost);
  if (from < cost && to > 0 && rows > 0) {
    ListPart& part = shared.parts[from >= 0 ? 0 : 1];
    part.expert = expert;
    part.rows = rows;
    part.first = strip_of(from);
    part.count = strip_of(to) - part.first;
    const int at = part.first * cut.tile_bytes;
    part.bytes = args.n * static_cast<int>(args.w_column) - at;
    part.w = args.w + expert * args.w_expert + at;
    part.up = args.up + expert * args.up_expert + at;
    int found = 0;
#pragma unroll
    for (int i = 0; i < kOnePairs / kWarp; ++i) {
      while (mates[i] != 0 && found < rows) {
        part.pair[found++] = kWarp * i + __ffs(static_cast<int>(mates[i])) - 1;
        mates[i] &= mates[i] - 1;
      }
    }
  }
  __syncthreads();
}

}  // namespace conclave::cuda
