// Products of any number of rows with weights in blocks of 32 that lie in planes (weight_planes.h), on the int8 tensor
// cores, with the bits of product_plan.h. Runs on every GPU from sm_80 on.
//
// A block computes 64 columns of weights for up to 64 rows, or where lists are short 32 columns for up to 16 (of
// gate_up: half of them of gate and the same of up). It goes through the chunks with a ring of buffers that are copied
// ahead: for short lists a deeper one. Each of its warps has 16 columns and all rows: weights are unpacked once. A
// block of 32 is one step of the matrix instruction; what it comes to is added by itself, in order.
//
// A row's length need not be whole chunks: past its last block it has zeros, levels of any kind and, in the padding of
// the weights, scales of zero. They add nothing: a sum that began as 0 is never -0.
#pragma once

#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

struct BlockShape {
  int columns;
  int rows;
  int stages;   // of the ring
  int at_once;  // blocks on a multiprocessor

  constexpr int threads() const { return columns / 16 * kWarp; }
};
constexpr BlockShape block_shape(DType type, bool few) {
  const bool q8_0 = type == DType::q8_0;
  if (few) return {.columns = 32, .rows = 16, .stages = 5, .at_once = q8_0 ? 3 : 4};
  return {.columns = 64, .rows = 64, .stages = 2, .at_once = q8_0 ? 3 : 4};
}
// Where lists have a few rows each.
constexpr bool has_few_rows(std::int64_t n_rows, std::int64_t max_active) {
  return n_rows <= 16 || n_rows <= 8 * max_active;
}

// One buffer: columns of levels, their scales, rows, their scales. Strides keep eight rows' words in different banks.
inline constexpr int kBlockRowStride = kChunk + 16;
constexpr int block_column_stride(DType type) {
  return 8 * level_bytes(type) + 16;
}
constexpr int block_scales_at(DType type, bool few) {
  return block_shape(type, few).columns * block_column_stride(type);
}
constexpr int block_rows_at(DType type, bool few) {
  return block_scales_at(type, few) + block_shape(type, few).columns * 8 * scale_bytes(type);
}
constexpr int block_stage_bytes(DType type, bool few) {
  return block_rows_at(type, few) + block_shape(type, few).rows * (kBlockRowStride + 4);
}
constexpr int block_shared_bytes(DType type, bool few) {
  return block_shape(type, few).stages * block_stage_bytes(type, few);
}
constexpr bool block_shared_fits(DType type, bool few) {
  return block_stage_bytes(type, few) % 16 == 0 &&
         block_shape(type, few).at_once * (block_shared_bytes(type, few) + 2048) <= 227 * 1024;
}
static_assert(block_shared_fits(DType::q8_0, true) && block_shared_fits(DType::q8_0, false));
static_assert(block_shared_fits(DType::q4_0, true) && block_shared_fits(DType::q4_0, false));
static_assert(block_shared_fits(DType::mxfp4, true) && block_shared_fits(DType::mxfp4, false));

// The most tiles of `tile` rows that n_rows rows over n_lists lists can need.
constexpr std::int64_t most_block_tiles(std::int64_t n_rows, std::int64_t n_lists, std::int64_t tile) {
  return n_rows / tile + (n_rows < n_lists ? n_rows : n_lists);
}

// `gate_up`: two matrices share the columns.
constexpr LaunchPlan block_rows_plan(DType type, bool few, std::int64_t n_rows, std::int64_t n_lists, std::int64_t n,
                                     bool gate_up) {
  const BlockShape shape = block_shape(type, few);
  return {.blocks =
              most_block_tiles(n_rows, n_lists, shape.rows) * ceil_div(n, gate_up ? shape.columns / 2 : shape.columns),
          .threads = shape.threads(),
          .shared_bytes = block_shared_bytes(type, few)};
}
static_assert(block_rows_plan(DType::mxfp4, false, 2048, 32, 2880, true).blocks == 64 * 90);

// From a bank that has been filled. `few`: has_few_rows(); the bits are the same.
int launch_block_rows(const UnitArgs& args, bool few, const Stream& stream);

}  // namespace conclave::cuda
