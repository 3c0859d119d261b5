// Products of any number of rows with weights in blocks of 32 that lie in planes (weight_planes.h), on the int8 tensor
// cores, with the bits of product_plan.h. Runs on every GPU from sm_80 on.
//
// A block computes 64 columns of weights for up to 64 rows (of gate_up: 32 columns of gate and the same of up). It goes
// through the chunks with two buffers, as many_rows does. Each of its four warps has 16 columns and all rows: weights are
// unpacked once. A block of 32 is one step of the matrix instruction; what it comes to is added by itself, in order.
//
// A row's length need not be whole chunks: past its last block it has zeros, levels of any kind and, in the padding of the
// weights, scales of zero. They add nothing: a sum that began as 0 is never -0.
#pragma once

#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

inline constexpr int kBlockThreads = 128;
inline constexpr int kBlockColumns = 16 * kBlockThreads / kWarp;
inline constexpr int kBlockRows = 64;

// One buffer. Strides keep eight rows' words in different banks.
inline constexpr int kBlockRowStride = kChunk + 16;
constexpr int block_column_stride(DType type) {
  return 8 * level_bytes(type) + 16;
}
constexpr int block_scales_at(DType type) {
  return kBlockColumns * block_column_stride(type);
}
constexpr int block_rows_at(DType type) {
  return block_scales_at(type) + kBlockColumns * 8 * scale_bytes(type);
}
constexpr int block_stage_bytes(DType type) {
  return block_rows_at(type) + kBlockRows * (kBlockRowStride + 4);
}
// Blocks of a multiprocessor.
constexpr int block_rows_at_once(DType type) {
  return type == DType::q8_0 ? 3 : 4;
}
static_assert(4 * (2 * block_stage_bytes(DType::q4_0) + 2048) <= 227 * 1024);
static_assert(3 * (2 * block_stage_bytes(DType::q8_0) + 2048) <= 227 * 1024);

// The most tiles of rows that n_rows rows over n_lists lists can need.
constexpr std::int64_t most_block_tiles(std::int64_t n_rows, std::int64_t n_lists) {
  return n_rows / kBlockRows + (n_rows < n_lists ? n_rows : n_lists);
}

// `gate_up`: two matrices share the columns.
constexpr LaunchPlan block_rows_plan(DType type, std::int64_t n_rows, std::int64_t n_lists, std::int64_t n,
                                     bool gate_up) {
  return {.blocks = most_block_tiles(n_rows, n_lists) * ceil_div(n, gate_up ? kBlockColumns / 2 : kBlockColumns),
          .threads = kBlockThreads,
          .shared_bytes = 2 * block_stage_bytes(type)};
}
static_assert(block_rows_plan(DType::mxfp4, 2048, 32, 2880, true).blocks == 64 * 90);

// From a bank that has been filled.
int launch_block_rows(const UnitArgs& args, const Stream& stream);

}  // namespace conclave::cuda
