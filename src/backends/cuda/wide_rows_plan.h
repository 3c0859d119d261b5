// Products of many rows with superblock weights by wgmma, with the bits of product_plan.h: what many_rows does, on
// Hopper.
//
// Weights are decoded in registers with their scales multiplied in, as two digits (wide_levels.cuh), so that the tensor
// cores sum a whole superblock, each digit for itself.
//
// One block a multiprocessor takes tile after tile: 128 columns of weights (of gate_up: 64 of gate and the same of up)
// for up to 96 rows of a list: outputs and two digits' sums of more have no place in registers. One warpgroup finds the
// tiles and copies weights as stored, rows, their sums and scales into a ring of stages, a superblock each; two more
// have 64 columns each and multiply.
//
// What 128 columns, 96 rows and 256 of k take of a multiprocessor, in cycles: tensor cores 1,630 (100 of them the
// minimums); a scheduler's issue slots 1,650 (twice 750 instructions for Q4_K, of them 400 to add to the outputs and
// 230 to decode; 150 to copy); shared memory 1,600 (770 of them wgmma's reads of rows); copies 660 lines.
#pragma once

#include "backends/cuda/few_rows_plan.h"

namespace conclave::cuda {

inline constexpr int kWideGroup = 128;  // threads of a warpgroup
inline constexpr int kWideMultiplying = 2;
inline constexpr int kWideThreads = (kWideMultiplying + 1) * kWideGroup;
inline constexpr int kWideColumns = 128;
inline constexpr int kWideRows = 96;
inline constexpr int kShortRows = 32;  // where tiles are short, two blocks share a multiprocessor
constexpr int wide_stages(int rows) {
  return rows == kShortRows ? 3 : 4;
}
inline constexpr std::int64_t kWideFrom = 17;  // rows of a list from which this kernel takes it...
inline constexpr std::int64_t kWideMean = 12;  // ...or all lists, where they have as many on average
// Where no list can have so many rows, none is worth a launch that may find nothing to do.
inline constexpr std::int64_t kWideSlots = 65;

// A stage: rows in two halves of k as wgmma.cuh wants them, columns, sums of activations (q6_k: words that hold d),
// scales. Strides keep eight columns' words in different banks.
constexpr int wide_half(int rows) {
  return rows * 128;
}
inline constexpr int kWideSumBytes = 32;  // of a row
constexpr int wide_column_stride(DType type) {
  return is_affine(type) ? block_bytes(type) : 208;
}
constexpr int wide_sums_at(DType type, int rows) {
  return 2 * wide_half(rows) + kWideColumns * wide_column_stride(type);
}
constexpr int wide_scales_at(DType type, int rows) {
  return wide_sums_at(type, rows) + (is_affine(type) ? rows * kWideSumBytes : kWideColumns * 4);
}
constexpr int wide_stage_bytes(DType type, int rows) {
  return (wide_scales_at(type, rows) + rows * 4 + 1023) / 1024 * 1024;
}
// Where a row's scale lies: those that a lane needs for two tiles of eight rows side by side.
constexpr int wide_scale_place(int row) {
  return row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2;
}
static_assert(wide_scale_place(0) == 0 && wide_scale_place(3) == 5 && wide_scale_place(8) == 2 &&
              wide_scale_place(31) == 31);
// Behind the stages: outputs on their way to memory, 32 rows of a warpgroup at a time; what is known of two tiles;
// barriers.
inline constexpr int kWideOutRows = 32;
inline constexpr int kWideOutStride = kWideColumns / kWideMultiplying + 4;
inline constexpr int kWideOutBytes = kWideMultiplying * kWideOutRows * kWideOutStride * 4;
inline constexpr int kWideTileBytes = 2 * kWideRows * 8 + kWideMultiplying * kWideRows * 4 + 256;
constexpr std::int64_t wide_shared_bytes(DType type, int rows) {
  return 1023 + wide_stages(rows) * wide_stage_bytes(type, rows) + kWideOutBytes +
         kWideTileBytes;  // it begins anywhere
}
static_assert(wide_shared_bytes(DType::q4_k, kWideRows) <= 227 * 1024 &&
              wide_shared_bytes(DType::q5_k, kWideRows) <= 227 * 1024 &&
              wide_shared_bytes(DType::q6_k, kWideRows) <= 227 * 1024);
constexpr int wide_blocks_each(int rows) {
  return rows == kShortRows ? 2 : 1;
}
static_assert(2 * (wide_shared_bytes(DType::q4_k, kShortRows) + 1024) <= 228 * 1024);

// The most tiles of `tile` rows that n_rows rows over n_lists lists can need, of lists with at least `from`.
constexpr std::int64_t most_wide_tiles(std::int64_t n_rows, std::int64_t n_lists, std::int64_t from,
                                       std::int64_t tile) {
  const std::int64_t lists = n_rows / from < n_lists ? n_rows / from : n_lists;
  return n_rows / tile + lists;
}
static_assert(most_wide_tiles(kWideFrom - 1, 8, kWideFrom, 128) == 0 &&
              most_wide_tiles(kWideFrom, 8, kWideFrom, 128) == 1);

constexpr std::int64_t wide_tiles_across(std::int64_t n, bool gate_up) {
  return ceil_div(n, gate_up ? kWideColumns / 2 : kWideColumns);
}
// Rows of a tile: all it can have, or fewer where there would be too few tiles for most multiprocessors, or lists are
// short.
constexpr int wide_tile_rows(std::int64_t n_rows, std::int64_t n_lists, std::int64_t n, bool gate_up,
                             int multiprocessors) {
  if (n_rows <= (kShortRows - 8) * n_lists) return kShortRows;
  int rows = kWideRows;
  while (rows > 32 && 4 * ceil_div(n_rows, rows) * wide_tiles_across(n, gate_up) < 3 * multiprocessors) rows -= 32;
  return rows;
}
static_assert(wide_tile_rows(2048, 128, 768, true, 132) == 32 &&
              wide_tile_rows(16384, 128, 768, true, 132) == kWideRows);
static_assert(wide_tile_rows(512, 1, 512, false, 132) == 32);

// Blocks take tiles until there are none.
constexpr LaunchPlan wide_rows_plan(DType type, std::int64_t most_tiles, std::int64_t n, bool gate_up, int rows,
                                    int multiprocessors) {
  const std::int64_t tiles = most_tiles * wide_tiles_across(n, gate_up);
  const std::int64_t room = std::int64_t{multiprocessors} * wide_blocks_each(rows);
  return {
      .blocks = tiles < room ? tiles : room, .threads = kWideThreads, .shared_bytes = wide_shared_bytes(type, rows)};
}

// Whether this build has the kernel for the current GPU.
bool wide_rows_built();
// Lists with more than args.most_rows rows, from a bank that has been filled.
int launch_wide_rows(const UnitArgs& args, int multiprocessors, const Stream& stream);

}  // namespace conclave::cuda
