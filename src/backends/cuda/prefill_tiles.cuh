// What the warps of prefill_rows tell one another, and how they find their tiles.
#pragma once

#include "backends/cuda/row_table.cuh"
#include "backends/cuda/weight_boxes_plan.h"
#include "backends/cuda/wgmma.cuh"

namespace conclave::cuda {

struct PrefillTile {
  int list;  // -1: there are no more
  int expert;
  int first_row;
  int count;
  int side;   // of which product
  int first;  // place of its first column
};

// Shared memory behind the rings.
template <DType type, int kRows>
struct PrefillShared {
  alignas(16) std::byte out[prefill_groups(kRows)][prefill_out_bytes(type, kRows)];
  const std::byte* starts[prefill_columns(kRows)];  // of the columns whose weights are being copied
  alignas(16) unsigned row_starts[kRows];           // likewise
  TableSlot slots[kPrefillTold][kRows];
  PrefillTile tile[kPrefillTold];
  std::uint64_t weights_full[prefill_weight_barriers(type, kRows)];   // a stage has been copied
  std::uint64_t weights_empty[prefill_weight_barriers(type, kRows)];  // it has been read
  std::uint64_t rows_full[prefill_halves(type, kRows)];
  std::uint64_t rows_empty[prefill_halves(type, kRows)];
  std::uint64_t known[kPrefillTold];  // likewise, tile and slots
  std::uint64_t done[kPrefillTold];
};

template <DType type, int kRows>
struct PrefillMemory {
  std::byte* at;  // a multiple of 1024

  __device__ __forceinline__ std::byte* rows(int place) const { return at + place * prefill_half_bytes(kRows); }
  __device__ __forceinline__ std::byte* weights(int place) const {
    return at + prefill_halves(type, kRows) * prefill_half_bytes(kRows) + place * prefill_weight_bytes(type, kRows);
  }
  // Of a warpgroup, where weights come as boxes: stages of so many superblocks.
  template <int kSpan>
  __device__ __forceinline__ std::byte* box(int place, int group) const {
    return weights(kSpan * place) + group * prefill_box_bytes(type, kSpan);
  }
  __device__ __forceinline__ PrefillShared<type, kRows>& shared() const {
    static_assert(sizeof(PrefillShared<type, kRows>) <= prefill_other_bytes(type, kRows));
    return *reinterpret_cast<PrefillShared<type, kRows>*>(weights(prefill_weight_stages(type, kRows)));
  }
};

// Walks over the tiles of a block, in order: list by list, of each the columns, of those the rows: blocks that run at
// the same time share weights. By a warp, which keeps what it knows of 32 lists.
class PrefillTiles {
 public:
  __device__ __forceinline__ PrefillTiles(const PrefillArgs& args, const PrefillCut& cut)
      : rows_(cut.rows),
        columns_(args.up != nullptr ? prefill_columns(cut.room) / 2 : prefill_columns(cut.room)),
        across_(static_cast<int>(cut.across)),
        ends_{cut.tiles_end[0], cut.tiles_end[1]},
        next_(static_cast<int>(blockIdx.x)) {
    read(args.table, 0);
  }

  __device__ __forceinline__ PrefillTile take(const RowTable& table) {
    while (next_ >= after_ && list_ + kWarp < table.n_lists) read(table, list_ + kWarp);
    const unsigned owner = __ballot_sync(kAllLanes, start_ <= next_ && next_ - start_ < tiles_ * across_);
    if (owner == 0) return {-1, 0, 0, 0, 0, 0};
    const int lane = __ffs(static_cast<int>(owner)) - 1;
    const int tiles = __shfl_sync(kAllLanes, tiles_, lane);
    const int begin = __shfl_sync(kAllLanes, range_.begin, lane);
    const int left = __shfl_sync(kAllLanes, range_.end, lane) - begin;
    const int at = next_ - __shfl_sync(kAllLanes, start_, lane);
    const int height = ((left + tiles - 1) / tiles + 15) / 16 * 16;  // equal tiles: blocks have equal work
    const int skipped = at % tiles * height;
    next_ += static_cast<int>(gridDim.x);
    const int column = at / tiles;
    const int side = column < ends_[0] ? 0 : column < ends_[1] ? 1 : 2;
    return {list_ + lane,
            __shfl_sync(kAllLanes, expert_, lane),
            begin + skipped,
            left - skipped < height ? left - skipped : height,
            side,
            (column - (side == 0 ? 0 : ends_[side - 1])) * columns_};
  }

 private:
  // The lists from `list` on.
  __device__ __forceinline__ void read(const RowTable& table, int list) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    list_ = list;
    range_ = {0, 0};
    expert_ = list + lane < table.n_lists ? expert_of(table, list + lane) : -1;
    if (expert_ >= 0) range_ = range_of(table, list + lane);
    tiles_ = range_.end > range_.begin ? (range_.end - range_.begin + rows_ - 1) / rows_ : 0;
    int sum = tiles_ * across_;  // of this lane and those below it
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(kAllLanes, sum, step);
      if (lane >= step) sum += other;
    }
    start_ = after_ + sum - tiles_ * across_;
    after_ += __shfl_sync(kAllLanes, sum, kWarp - 1);
  }

  int rows_;
  int columns_;
  int across_;
  int ends_[kPrefillSides - 1];
  int next_;
  int list_ = 0;
  int after_ = 0;  // tiles of all lists up to those that are known
  // Of the lane's list.
  RowRange range_{0, 0};
  int expert_ = -1;
  int tiles_ = 0;  // one below another
  int start_ = 0;
};

}  // namespace conclave::cuda
