// Rows of f32, some but not many, times a matrix of f32, in the canonical order (product_plan.h), on Hopper: a router's
// product of generated tokens.
//
// Such a product is over before the threads of a block have asked for what they need 16 bytes at a time. Here one warp
// asks for it, 2 KiB of a row or column with one instruction, and four multiply: a quarter of the block's tile each, a
// chain a lane. Pieces lie in a ring; of 2048 values of k all are on their way at once. Tiles are such that their blocks
// fill the GPU once. Columns are fetched before the kernel waits for what came before it.
#pragma once

#include <array>

#include "backends/cuda/float_rows_plan.h"
#include "backends/cuda/float_split_plan.h"

namespace conclave::cuda {

inline constexpr int kBulkPiece = 512;             // values of k
inline constexpr int kBulkPitch = 4 * kBulkPiece;  // bytes from row to row of a piece
inline constexpr int kBulkWarps = 4;               // that multiply
inline constexpr int kBulkThreads = (kBulkWarps + 1) * kWarp;
inline constexpr std::int64_t kBulkRows = 128;  // at most; float_split has more,
inline constexpr std::int64_t kBulkFrom = 9;    // and float_rows fewer
inline constexpr std::int64_t kBulkTurns = 2;   // blocks that a multiprocessor has, at most

struct BulkTile {
  int warp_rows;
  int warp_columns;

  constexpr int rows() const { return 2 * warp_rows; }
  constexpr int columns() const { return 2 * warp_columns; }
  constexpr int lines() const {
    return rows() + columns();
  }  // rows and columns: the copying warp's lanes have one each
  constexpr int stage_bytes() const { return lines() * kBulkPitch; }
  constexpr int stages() const { return static_cast<int>(std::min<std::int64_t>(8, kSplitShared / stage_bytes())); }
  constexpr std::int64_t blocks(std::int64_t n_rows, std::int64_t n) const {
    return ceil_div(n_rows, rows()) * ceil_div(n, columns());
  }
  // Of a block, about: what is fetched, and read again by its warps; and what it waits for.
  constexpr std::int64_t cost() const { return lines() + 8; }
};

inline constexpr std::array<BulkTile, 4> kBulkTiles{{{2, 2}, {2, 4}, {4, 4}, {4, 8}}};
static_assert(kBulkTiles[3].lines() <= kWarp && kBulkTiles[3].stages() == 4);

// The tile whose blocks are done first.
constexpr std::size_t bulk_tile(std::int64_t rows, std::int64_t n, std::int64_t multiprocessors) {
  const auto cost = [&](std::size_t i) {
    return ceil_div(kBulkTiles[i].blocks(rows, n), multiprocessors) * kBulkTiles[i].cost();
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < kBulkTiles.size(); ++i) {
    if (cost(i) < cost(best)) best = i;
  }
  return best;
}
static_assert(bulk_tile(16, 128, 132) == 0 && bulk_tile(17, 128, 132) == 1 && bulk_tile(32, 128, 132) == 1);
static_assert(bulk_tile(33, 128, 132) == 2 && bulk_tile(64, 128, 132) == 2 && bulk_tile(128, 128, 132) == 3);

constexpr LaunchPlan float_bulk_plan(std::int64_t rows, std::int64_t n, std::int64_t multiprocessors) {
  const BulkTile& tile = kBulkTiles[bulk_tile(rows, n, multiprocessors)];
  return {.blocks = tile.blocks(rows, n), .threads = kBulkThreads, .shared_bytes = tile.stages() * tile.stage_bytes()};
}
static_assert(float_bulk_plan(64, 128, 132).blocks == 128 && float_bulk_plan(128, 128, 132).blocks == 128);

// Rows and columns come in whole pieces of 16 bytes.
inline bool takes_bulk(const FloatRowsArgs& args) {
  return in_whole_words(args) && args.rows >= kBulkFrom && args.rows <= kBulkRows && args.n >= kSplitColumns &&
         float_bulk_plan(args.rows, args.n, args.multiprocessors).blocks <= kBulkTurns * args.multiprocessors;
}

int launch_float_bulk(const FloatRowsArgs& args, const Stream& stream);

}  // namespace conclave::cuda
