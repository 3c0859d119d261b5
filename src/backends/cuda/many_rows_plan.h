// Products of many rows with superblock weights, on the int8 tensor cores, with the bits of product_plan.h. Runs on every
// GPU from sm_80 on.
//
// A block computes 128 columns of weights for 64 rows (of gate_up: 64 columns of gate and the same of up). It goes through
// the superblocks with two buffers: while one is multiplied, the weights as stored, the rows, their sums and scales of the
// next are copied to the other. Eight warps: four times 32 columns by two times 32 rows.
#pragma once

#include "backends/cuda/few_rows_plan.h"

namespace conclave::cuda {

inline constexpr int kManyThreads = 256;
inline constexpr int kManyColumns = 128;
inline constexpr int kManyRows = 64;
inline constexpr std::int64_t kManyFrom = 25;  // rows of a list from which this kernel takes it

// One buffer. Strides keep eight rows' words in different banks.
inline constexpr int kRowStride = kChunk + 16;
inline constexpr int kSumStride = 32 + 16;
constexpr int many_column_stride(DType type) {
  return is_affine(type) ? block_bytes(type) : 208;
}
constexpr int stage_weights(DType type) {
  return kManyColumns * (many_column_stride(type) + (is_affine(type) ? 0 : 2));
}
constexpr int stage_bytes(DType type) {
  return stage_weights(type) + kManyRows * (kRowStride + kSumStride + 4);
}
static_assert(144 / 4 % 8 == 4 && 176 / 4 % 8 == 4 && 208 / 4 % 8 == 4 && kRowStride / 4 % 8 == 4 &&
              kSumStride / 4 % 8 == 4);
static_assert(2 * (2 * stage_bytes(DType::q6_k) + 4096) <= 227 * 1024, "two blocks on a multiprocessor");

// The most tiles of rows that n_rows rows over n_lists lists can need, of lists with at least kManyFrom.
constexpr std::int64_t most_row_tiles(std::int64_t n_rows, std::int64_t n_lists) {
  const std::int64_t lists = n_rows / kManyFrom < n_lists ? n_rows / kManyFrom : n_lists;
  return n_rows / kManyRows + lists;
}
static_assert(most_row_tiles(kManyFrom - 1, 8) == 0);
static_assert(most_row_tiles(kManyFrom, 8) == 1);

// `gate_up`: two matrices share the columns.
constexpr LaunchPlan many_rows_plan(DType type, std::int64_t n_rows, std::int64_t n_lists, std::int64_t n,
                                    bool gate_up) {
  return {.blocks = most_row_tiles(n_rows, n_lists) * ceil_div(n, gate_up ? kManyColumns / 2 : kManyColumns),
          .threads = kManyThreads,
          .shared_bytes = 2 * stage_bytes(type)};
}

// Lists with at least kManyFrom rows, from a bank that has been filled.
int launch_many_rows(const UnitArgs& args, const Stream& stream);

}  // namespace conclave::cuda
