// The lists that have rows, in order: found by the threads of a block together.
#pragma once

#include "backends/cuda/row_table.cuh"

namespace conclave::cuda {

inline constexpr int kListed = 256;  // lists whose places are kept

struct ActiveLists {
  int count;
  int begin;
  int before[kWarp];
  std::uint8_t list[kListed];  // from `begin` on
  static_assert(kListed <= 256);

  __device__ __forceinline__ int at(int place) const { return begin + list[place]; }

  // Of lists `first` .. `first` + kListed - 1.
  __device__ __forceinline__ void find(const RowTable& table, int first) {
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;
    const int end = min(first + kListed, table.n_lists);
    int seen = 0;
#pragma unroll 1
    for (int from = first; from < end; from += static_cast<int>(blockDim.x)) {
      const int mine = from + static_cast<int>(threadIdx.x);
      bool has = false;
      if (mine < end) {
        const RowRange range = range_of(table, mine);
        has = range.end > range.begin && expert_of(table, mine) >= 0;
      }
      const unsigned votes = __ballot_sync(kAllLanes, has);
      __syncthreads();
      if (lane == 0) before[warp] = __popc(votes);
      __syncthreads();
      // Every lane adds up one warp's count.
      const int n_warps = static_cast<int>(blockDim.x) / kWarp;
      const int theirs = lane < n_warps ? before[lane] : 0;
      const int rank =
          seen + __reduce_add_sync(kAllLanes, lane < warp ? theirs : 0) + __popc(votes & ((1U << lane) - 1));
      seen += __reduce_add_sync(kAllLanes, theirs);
      if (has) list[rank] = static_cast<std::uint8_t>(mine - first);
    }
    if (threadIdx.x == 0) {
      count = seen;
      begin = first;
    }
    __syncthreads();
  }
};

}  // namespace conclave::cuda
