// Few rows of f32 times a matrix of plain weights, in the canonical order (product_plan.h): a router's product at decode.
//
// A warp takes a column, one chain a lane. Weights are fetched before the kernel waits for what came before it.
#pragma once

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
};

inline constexpr int kFloatThreads = 128;
inline constexpr std::int64_t kFloatRows = 8;  // at most: more are for other kernels

constexpr LaunchPlan float_rows_plan(std::int64_t n) {
  return {.blocks = ceil_div(n, kFloatThreads / kWarp), .threads = kFloatThreads};
}
static_assert(float_rows_plan(128).blocks == 32);

int launch_float_rows(const FloatRowsArgs& args, const Stream& stream);

}  // namespace conclave::cuda
