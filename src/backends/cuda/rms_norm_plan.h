// rms_norm: a block per row, or four rows of a warp each where a row is short. A row of up to 8192 elements is read
// once.
#pragma once

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

struct RmsNormArgs {
  View x;    // [n, d] or [n, n_heads, d]
  View add;  // [n, d], where x is first to become x + add, as op add does it; rows of up to kKeptPasses passes
  View weight;
  View out;
  const std::int32_t* live = nullptr;
  float eps = 0;
  BankOut bank;  // of rows of rank 2, of up to kKeptPasses passes
};

inline constexpr int kWarpRowsPerBlock = 4;

constexpr bool is_warp_row(std::int64_t d) {
  return row_threads(d) == kWarp;
}
constexpr LaunchPlan rms_norm_plan(std::int64_t n_rows, std::int64_t d) {
  if (n_rows == 0 || d == 0) return {};
  if (is_warp_row(d)) {
    return {.blocks = std::min(ceil_div(n_rows, kWarpRowsPerBlock), kManyBlocks), .threads = kWarpRowsPerBlock * kWarp};
  }
  return {.blocks = std::min(n_rows, kManyBlocks), .threads = row_threads(d)};
}
static_assert(rms_norm_plan(64, 2048).blocks == 64 && rms_norm_plan(64, 2048).threads == 256);
static_assert(rms_norm_plan(33, 128).blocks == 9 && rms_norm_plan(33, 128).threads == 128);
static_assert(rms_norm_plan(0, 128).blocks == 0);

int launch_rms_norm(const RmsNormArgs& args, const Stream& stream);

}  // namespace conclave::cuda
