// Which tile a block of wide_rows takes next, and how its warpgroups tell each other.
#pragma once

#include "backends/cuda/row_table.cuh"
#include "backends/cuda/wgmma.cuh"
#include "backends/cuda/wide_rows_plan.h"

namespace conclave::cuda {

struct WideTile {
  int list;  // -1: there are no more
  int expert;
  int first_row;
  int count;
  int column;  // the first, of the output
};

// Shared memory behind the stages.
struct WideShared {
  float out[kWideMultiplying][kWideOutRows][kWideOutStride];
  TableSlot slots[2][kWideRows];  // of two tiles: one may be copied while another is multiplied
  int plain[kWideMultiplying][kWideRows];
  WideTile tile[2];
  WideTile found;
  int before[kWideGroup / kWarp];
  std::uint64_t full[wide_stages(kWideRows)];   // a stage has been copied
  std::uint64_t empty[wide_stages(kWideRows)];  // it has been read
  std::uint64_t known[2];                       // likewise, tile and slots
  std::uint64_t done[2];
};
static_assert(sizeof(WideShared) <= kWideOutBytes + kWideTileBytes);

inline constexpr int kCopyingBarrier = 1;  // of the warpgroup that copies; 2 and 3 are of those that multiply

// Walks over the tiles of a block, in order: tiles of `rows` rows over all lists that are not left to few_rows, and
// columns of each. By the warpgroup that copies, together; `t`: the thread's place in it.
class WideTiles {
 public:
  __device__ __forceinline__ WideTiles(const UnitArgs& args, int rows)
      : rows_(rows),
        most_few_(args.most_rows),
        columns_(args.up != nullptr ? kWideColumns / 2 : kWideColumns),
        across_(static_cast<int>((static_cast<unsigned>(args.n) + static_cast<unsigned>(columns_) - 1) /
                                 static_cast<unsigned>(columns_))),
        tile_(static_cast<int>(blockIdx.x) / across_),
        column_(static_cast<int>(blockIdx.x) % across_) {}

  // This tile; the next time, the next one of the block.
  __device__ __forceinline__ WideTile take(const RowTable& table, WideShared& shared, int t) {
    WideTile tile = find(table, shared, t);
    tile.column = column_ * columns_;
    const auto blocks = static_cast<int>(gridDim.x);
    tile_ += blocks / across_;
    column_ += blocks % across_;
    if (column_ >= across_) {
      column_ -= across_;
      ++tile_;
    }
    return tile;
  }

 private:
  __device__ __forceinline__ WideTile find(const RowTable& table, WideShared& shared, int t) {
#pragma unroll 1
    for (;; first_ += kWideGroup) {
      const int list = first_ + t;
      RowRange range{0, 0};
      const int expert = list < table.n_lists ? expert_of(table, list) : -1;
      if (expert >= 0) range = range_of(table, list);
      const int rows = range.end - range.begin;
      const int tiles = rows > most_few_ ? (rows + rows_ - 1) / rows_ : 0;
      int sum = tiles;  // of this lane and those below it
#pragma unroll
      for (int step = 1; step < kWarp; step *= 2) {
        const int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
        if (t % kWarp >= step) sum += other;
      }
      group_barrier(kCopyingBarrier);
      if (t % kWarp == kWarp - 1) shared.before[t / kWarp] = sum;
      if (t == 0) shared.found = {-1, 0, 0, 0, 0};
      group_barrier(kCopyingBarrier);
      int start = seen_ + sum - tiles;
      int all = seen_;
#pragma unroll
      for (int w = 0; w < kWideGroup / kWarp; ++w) {
        if (w < t / kWarp) start += shared.before[w];
        all += shared.before[w];
      }
      if (tile_ < all || first_ + kWideGroup >= table.n_lists) {  // here or nowhere
        if (start <= tile_ && tile_ < start + tiles) {
          const int from = range.begin + (tile_ - start) * rows_;
          shared.found = {list, expert, from, range.end - from < rows_ ? range.end - from : rows_, 0};
        }
        group_barrier(kCopyingBarrier);
        return shared.found;
      }
      seen_ = all;
    }
  }

  int rows_;
  int most_few_;
  int columns_;
  int across_;  // tiles
  int tile_;
  int column_;
  int first_ = 0;  // list of the 128 in which tile_ is, or after which it is
  int seen_ = 0;   // tiles of the lists before it
};

}  // namespace conclave::cuda
