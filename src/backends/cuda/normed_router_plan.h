// An RMSNorm of some rows of f32 and the product of what it gives with a matrix of f32, in the canonical order
// (product_plan.h): a router's, of 2 to 16 generated tokens. For Hopper.
//
// A block has some rows and eight columns. The columns come to shared memory, a copy each, before the kernel waits for
// the one before it. Then all threads norm the block's rows, each the elements that it has in rms_norm, in that
// op's order, and leave them in shared memory; the product is as in float_bulk. So the rows are normed by every block
// that shares them, and one of those writes each of them, as int8, too, where somebody wants that.
#pragma once

#include "backends/cuda/rms_norm_plan.h"

namespace conclave::cuda {

struct NormedRouterArgs {
  const float* x = nullptr;
  std::int64_t x_stride = 0;  // floats, as all strides here
  const float* norm_weight = nullptr;
  float* normed = nullptr;
  std::int64_t normed_stride = 0;
  const float* w = nullptr;
  std::int64_t w_column = 0;
  const float* bias = nullptr;
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const std::int32_t* live = nullptr;
  BankOut bank;
  float eps = 0;
  std::int32_t rows = 0;
  std::int32_t n = 0;
  std::int32_t k = 0;
  std::int32_t multiprocessors = 1;
};

inline constexpr int kRouterColumns = 8;  // of a block
inline constexpr int kRouterMostRows = 2;
// More tokens are normed by a kernel of their own: rows and columns would leave no room beside the product before.
inline constexpr std::int64_t kRouterTokens = 16;
inline constexpr std::int64_t kRouterTurns = 2;      // blocks that a multiprocessor has, at most
inline constexpr std::int64_t kRouterLength = 4096;  // of a row, at most: a thread has eight neighbours of it

// Rows of a block: as few as leave the GPU one turn.
constexpr int router_rows(std::int64_t rows, std::int64_t n, std::int64_t multiprocessors) {
  return rows * ceil_div(n, kRouterColumns) <= multiprocessors ? 1 : kRouterMostRows;
}
constexpr LaunchPlan normed_router_plan(std::int64_t rows, std::int64_t n, std::int64_t k,
                                        std::int64_t multiprocessors) {
  const int of_block = router_rows(rows, n, multiprocessors);
  return {.blocks = ceil_div(rows, of_block) * ceil_div(n, kRouterColumns),
          .threads = row_threads(k),
          .shared_bytes = (of_block + kRouterColumns) * k * 4};
}
static_assert(normed_router_plan(8, 128, 2048, 132).blocks == 128);
static_assert(normed_router_plan(16, 128, 2048, 132).blocks == 128);
static_assert(normed_router_plan(8, 128, 2048, 132).shared_bytes == 72 * 1024);

int launch_normed_router(const NormedRouterArgs& args, const Stream& stream);

}  // namespace conclave::cuda
