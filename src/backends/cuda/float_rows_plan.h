// Rows of f32 times a matrix of plain weights, in the canonical order (product_plan.h): a router's product.
//
// A lane has one of an output's 32 chains. A block takes a tile of outputs, whose rows and columns come through shared
// memory some values at a time; a warp has a part of the tile in registers. Weights are fetched before the kernel waits
// for what came before it.
#pragma once

#include <algorithm>
#include <array>

#include "backends/cuda/view.h"

namespace conclave::cuda {

struct FloatRowsArgs {
  const std::byte* w = nullptr;
  std::int64_t w_column = 0;
  const std::byte* x = nullptr;
  std::int64_t x_stride = 0;
  std::byte* out = nullptr;
  std::int64_t out_stride = 0;
  const std::byte* bias = nullptr;
  const std::int32_t* live = nullptr;
  std::int32_t rows = 0;
  std::int32_t n = 0;
  std::int32_t k = 0;
  DType type = DType::f32;
  DType out_type = DType::f32;
  DType bias_type = DType::f32;
  std::int32_t multiprocessors = 0;  // of a GPU that can run float_split_plan.h; 0: it cannot
};

inline constexpr std::int64_t kFloatShared = 96 * 1024;  // of a block: every GPU has it
inline constexpr std::int64_t kFloatBlocks = 96;         // so many are worth more than a larger tile,
inline constexpr std::int64_t kFloatWarps = 1024;        // and so many

struct FloatTile {
  int warp_rows;
  int warp_columns;
  int down;  // warps
  int across;
  int step;  // of k at a time

  constexpr int rows() const { return warp_rows * down; }
  constexpr int columns() const { return warp_columns * across; }
  constexpr int threads() const { return down * across * kWarp; }
  constexpr int pitch() const { return 4 * step; }
  constexpr int stage_bytes() const { return (rows() + columns()) * pitch(); }
  // All of 2048 on its way at once, where there is room.
  constexpr int stages() const {
    return static_cast<int>(std::min<std::int64_t>(2048 / step + 1, kFloatShared / stage_bytes()));
  }
  constexpr std::int64_t blocks(std::int64_t n_rows, std::int64_t n) const {
    return ceil_div(n_rows, rows()) * ceil_div(n, columns());
  }
};

// The larger a tile, the less is fetched for an output.
inline constexpr std::array<FloatTile, 8> kFloatTiles{{{1, 1, 1, 1, 512},
                                                       {1, 8, 1, 2, 128},
                                                       {1, 1, 8, 1, 512},
                                                       {2, 2, 2, 2, 128},
                                                       {4, 4, 2, 2, 128},
                                                       {8, 8, 2, 2, 128},
                                                       {8, 8, 4, 2, 128},
                                                       {8, 8, 4, 4, 128}}};

// The largest tile that leaves enough blocks and warps and is not half empty.
constexpr std::size_t float_tile(std::int64_t rows, std::int64_t n) {
  std::size_t at = kFloatTiles.size() - 1;
  const auto fits = [&](const FloatTile& tile) {
    const std::int64_t blocks = tile.blocks(rows, n);
    return tile.rows() < 2 * rows && tile.columns() < 2 * n && blocks >= kFloatBlocks &&
           blocks * tile.threads() >= kFloatWarps * kWarp;
  };
  while (at > 0 && !fits(kFloatTiles[at])) --at;
  return at;
}
static_assert(float_tile(1, 128) == 0 && float_tile(1, 8192) == 1 && float_tile(8, 128) == 2);
static_assert(float_tile(32, 128) == 3 && float_tile(64, 128) == 3 && float_tile(256, 128) == 4);
static_assert(float_tile(512, 128) == 6 && float_tile(2048, 128) == 7 && float_tile(2048, 1) == 2);

constexpr LaunchPlan float_rows_plan(std::int64_t rows, std::int64_t n) {
  if (rows == 0 || n == 0) return {};
  const FloatTile& tile = kFloatTiles[float_tile(rows, n)];
  return {
      .blocks = tile.blocks(rows, n), .threads = tile.threads(), .shared_bytes = tile.stages() * tile.stage_bytes()};
}
static_assert(float_rows_plan(1, 128).blocks == 128 && float_rows_plan(1, 128).threads == kWarp);
static_assert(float_rows_plan(2048, 128).blocks == 256 && float_rows_plan(0, 128).blocks == 0);

// Kernels count in 32 bits.
constexpr bool fits_float_rows(std::int64_t rows, std::int64_t n, std::int64_t k) {
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  return rows <= kMost && n <= kMost && k <= kMost && float_rows_plan(rows, n).blocks <= kMaxBlocks;
}

int launch_float_rows(const FloatRowsArgs& args, const Stream& stream);

}  // namespace conclave::cuda
