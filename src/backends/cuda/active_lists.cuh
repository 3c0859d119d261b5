// The lists that have rows, in order, cut into passes of so many rows: found by the threads of a block together.
#pragma once

#include "backends/cuda/row_table.cuh"

namespace conclave::cuda {

inline constexpr int kListed = 256;  // lists that are looked at together, and passes whose places are kept
inline constexpr int kListingWarps = 8;

struct ActiveLists {
  int count;  // passes that are kept, from pass `skipped` of all those of lists `begin` .. `begin` + kListed - 1
  int all;
  int begin;
  int skipped;
  int before[kListingWarps];
  std::uint8_t list[kListed];
  std::uint16_t pass[kListed];
  static_assert(kListed <= 256);

  __device__ __forceinline__ int at(int place) const { return begin + list[place]; }
  // The rows of a pass.
  __device__ __forceinline__ RowRange rows(const RowTable& table, int place, int each) const {
    RowRange range = range_of(table, at(place));
    range.begin += pass[place] * each;
    range.end = min(range.end, range.begin + each);
    return range;
  }
  // Which come next: those of the same lists that had no place, or the next lists.
  __device__ __forceinline__ bool has_more() const { return skipped + kListed < all; }

  // `each`: rows of a pass, at most. Lists of more than `most` rows are left out; 0: none are.
  __device__ __forceinline__ void find(const RowTable& table, int first, int skip, int each, int most) {
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;
    const int end = min(first + kListed, table.n_lists);
    int seen = 0;
#pragma unroll 1
    for (int from = first; from < end; from += static_cast<int>(blockDim.x)) {
      const int mine = from + static_cast<int>(threadIdx.x);
      int rows = 0;
      if (mine < end && expert_of(table, mine) >= 0) {
        const RowRange range = range_of(table, mine);
        rows = range.end - range.begin;
      }
      if (most > 0 && rows > most) rows = 0;
      const int passes = rows > 0 ? (rows + each - 1) / each : 0;
      int sum = passes;  // of this lane and those below it
#pragma unroll
      for (int step = 1; step < kWarp; step *= 2) {
        const int other = __shfl_up_sync(kAllLanes, sum, step);
        if (lane >= step) sum += other;
      }
      __syncthreads();
      if (lane == kWarp - 1) before[warp] = sum;
      __syncthreads();
      // Every lane adds up one warp's count.
      const int n_warps = static_cast<int>(blockDim.x) / kWarp;
      const int theirs = lane < n_warps ? before[lane] : 0;
      const int place = seen + __reduce_add_sync(kAllLanes, lane < warp ? theirs : 0) + sum - passes - skip;
      seen += __reduce_add_sync(kAllLanes, theirs);
#pragma unroll 1
      for (int i = max(0, -place); i < passes && place + i < kListed; ++i) {
        list[place + i] = static_cast<std::uint8_t>(mine - first);
        pass[place + i] = static_cast<std::uint16_t>(i);
      }
    }
    if (threadIdx.x == 0) {
      count = min(seen - skip, kListed);
      all = seen;
      begin = first;
      skipped = skip;
    }
    __syncthreads();
  }
};

}  // namespace conclave::cuda
