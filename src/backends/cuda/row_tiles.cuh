// Tiles of rows over the lists of a RowTable.
#pragma once

#include "backends/cuda/row_table.cuh"

namespace conclave::cuda {

// Rows of a list.
struct RowTile {
  int list;  // -1: there is none
  int first_row;
  int end_row;
};

// The slots of a tile, and a mark for each row, cleared. By the block; a barrier ends it.
template <int kRows>
__device__ __forceinline__ void take_slots(const RowTable& table, const RowTile& tile, TableSlot (&slots)[kRows],
                                           int (&marks)[kRows]) {
  const auto r = static_cast<int>(threadIdx.x);
  if (r < kRows) {
    slots[r] = r < tile.end_row - tile.first_row ? slot_of(table, tile.list, tile.first_row + r) : TableSlot{-1, -1};
    marks[r] = 0;
  }
  __syncthreads();
}

// The tile-th tile of `tile_rows` rows, over all lists that have at least `from_rows`. All kThreads of the block
// together.
template <int kThreads>
__device__ __forceinline__ RowTile find_tile(const RowTable& table, int tile, int tile_rows, int from_rows) {
  __shared__ int before[kThreads / kWarp];
  __shared__ RowTile found;
  if (threadIdx.x == 0) found = {-1, 0, 0};
  int seen = 0;
#pragma unroll 1
  for (int first = 0; first < table.n_lists && seen <= tile; first += kThreads) {
    const int list = first + static_cast<int>(threadIdx.x);
    RowRange range{0, 0};
    if (list < table.n_lists && expert_of(table, list) >= 0) range = range_of(table, list);
    const int rows = range.end - range.begin;
    const int tiles = rows >= from_rows ? (rows + tile_rows - 1) / tile_rows : 0;
    int sum = tiles;  // of this lane and those below it
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
      if (static_cast<int>(threadIdx.x % kWarp) >= step) sum += other;
    }
    __syncthreads();
    if (threadIdx.x % kWarp == kWarp - 1) before[threadIdx.x / kWarp] = sum;
    __syncthreads();
    int start = seen + sum - tiles;
#pragma unroll
    for (unsigned w = 0; w < kThreads / kWarp; ++w) {
      if (w < threadIdx.x / kWarp) start += before[w];
      seen += before[w];
    }
    if (tiles > 0 && start <= tile && tile < start + tiles) {
      const int from = range.begin + (tile - start) * tile_rows;
      found = {list, from, from + tile_rows < range.end ? from + tile_rows : range.end};
    }
  }
  __syncthreads();
  return found;
}

}  // namespace conclave::cuda
