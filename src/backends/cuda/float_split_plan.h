// Many rows of f32 times a matrix of f32, in the canonical order (product_plan.h), on GPUs whose blocks form clusters.
//
// What a multiprocessor can hold of the 32 chains of its outputs bounds the tile, and the tile how often rows and
// columns are fetched. So a tile has half of the chains at a time: 0-7 and 16-23, then 8-15 and 24-31, whole sectors of
// memory both. Each half folds by itself once, and eight sums of an output meet those of the other half: two blocks of
// a cluster have a half each, or, where there are rows enough, one block has both, one after the other.
// A lane has two neighbouring chains, of rows and columns of which the warp's four sets of eight lanes share half each.
#pragma once

#include <array>

#include "backends/cuda/float_rows_plan.h"

namespace conclave::cuda {

inline constexpr int kSplitStep = 128;            // of k at a time, of which a half has 64
inline constexpr int kSplitPitch = 4 * 64 + 64;   // bytes of those in shared memory: neighbouring rows in other banks
inline constexpr int kSplitPieces = 4 * 64 / 16;  // 16 bytes each
inline constexpr std::int64_t kSplitRows = 129;   // fewer are for float_bulk_plan.h
inline constexpr std::int64_t kSplitColumns = 16;

struct SplitTile {
  int lane_rows;
  int lane_columns;
  int down;  // warps
  int across;
  bool both;  // halves, by one block
  int stages;

  constexpr int rows() const { return 2 * lane_rows * down; }
  constexpr int columns() const { return 2 * lane_columns * across; }
  constexpr int threads() const { return down * across * kWarp; }
  constexpr int outputs() const { return lane_rows * lane_columns; }  // a lane's, two chains each
  // Sums of a lane that wait for the other half, or come from it.
  constexpr int kept() const { return both ? outputs() : outputs() / 2; }
  constexpr int kept_bytes() const { return 4 * kept() * threads(); }
  constexpr int stage_bytes() const { return (rows() + columns()) * kSplitPitch; }
  constexpr int shared_bytes() const { return kept_bytes() + stages * stage_bytes(); }
  constexpr std::int64_t blocks(std::int64_t n_rows, std::int64_t n) const {
    return ceil_div(n_rows, rows()) * ceil_div(n, columns()) * (both ? 1 : 2);
  }
  // Of a block, about: products, and what is fetched for them.
  constexpr std::int64_t cost() const { return (both ? 2 : 1) * (rows() * columns() / 8 + 2 * (rows() + columns())); }
};

inline constexpr std::array<SplitTile, 5> kSplitTiles{{{4, 4, 2, 2, false, 16},
                                                       {4, 4, 2, 4, false, 12},
                                                       {4, 8, 4, 2, false, 6},
                                                       {8, 8, 4, 2, false, 5},
                                                       {8, 8, 4, 2, true, 4}}};
inline constexpr std::int64_t kSplitShared = 196 * 1024;  // of a block, at most
static_assert(kSplitTiles[3].shared_bytes() <= kSplitShared && kSplitTiles[4].shared_bytes() <= kSplitShared);

// The tile whose blocks are done first.
constexpr std::size_t split_tile(std::int64_t rows, std::int64_t n, std::int64_t multiprocessors) {
  const auto cost = [&](std::size_t i) {
    return ceil_div(kSplitTiles[i].blocks(rows, n), multiprocessors) * kSplitTiles[i].cost();
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < kSplitTiles.size(); ++i) {
    if (cost(i) <= cost(best)) best = i;
  }
  return best;
}
static_assert(split_tile(128, 128, 132) == 0 && split_tile(256, 128, 132) == 1 && split_tile(512, 128, 132) == 2);
static_assert(split_tile(1024, 128, 132) == 3 && split_tile(2048, 128, 132) == 4);

constexpr LaunchPlan float_split_plan(std::int64_t rows, std::int64_t n, std::int64_t multiprocessors) {
  const SplitTile& tile = kSplitTiles[split_tile(rows, n, multiprocessors)];
  return {.blocks = tile.blocks(rows, n),
          .threads = tile.threads(),
          .shared_bytes = tile.shared_bytes(),
          .cluster = tile.both ? 1 : 2};
}
static_assert(float_split_plan(2048, 128, 132).blocks == 128 && float_split_plan(512, 128, 132).blocks == 128);

// Whether it is for Hopper: rows and columns of f32 come in pieces of 16 bytes, and all chains are as long.
inline bool in_whole_words(const FloatRowsArgs& args) {
  const auto odd = reinterpret_cast<std::uintptr_t>(args.w) | reinterpret_cast<std::uintptr_t>(args.x) |
                   static_cast<std::uintptr_t>(args.w_column) | static_cast<std::uintptr_t>(args.x_stride);
  return args.multiprocessors > 0 && args.type == DType::f32 && args.k > 0 && args.k % kWarp == 0 && odd % 16 == 0;
}
inline bool takes_split(const FloatRowsArgs& args) {
  return in_whole_words(args) && args.rows >= kSplitRows && args.n >= kSplitColumns &&
         float_split_plan(args.rows, args.n, args.multiprocessors).blocks <= kMaxBlocks;
}

int launch_float_split(const FloatRowsArgs& args, const Stream& stream);

}  // namespace conclave::cuda
