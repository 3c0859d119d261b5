// rms_norm of a few rows of f32, of a sum where there is one: what decoding some sequences needs. A block has a row,
// and reads and writes it with no more instructions than that takes.
#pragma once

#include "backends/cuda/rms_norm_plan.h"
#include "backends/cuda/spread_plan.h"

namespace conclave::cuda {

inline constexpr std::int64_t kNormFewRows = 256;  // at most
inline constexpr std::int64_t kNormSpread = 16;    // more rows than these are kept apart

constexpr LaunchPlan norm_few_plan(std::int64_t n_rows, std::int64_t d) {
  return {.blocks = n_rows, .threads = row_threads(d), .shared_bytes = n_rows > kNormSpread ? kSpreadBytes : 0};
}
static_assert(norm_few_plan(64, 2048).threads == 256 && norm_few_plan(8, 2048).shared_bytes == 0);

// Views are such that they take vectors.
inline bool takes_norm_few(const RmsNormArgs& args) {
  const std::int64_t d = args.x.dims[1];
  const auto is_f32 = [](const View& v) { return v.data == nullptr || v.type == DType::f32; };
  return args.x.rank == 2 && args.x.dims[0] > 0 && args.x.dims[0] <= kNormFewRows && d > 0 &&
         d % (kRunLength * kWarp) == 0 && !is_warp_row(d) && row_passes(d) == 1 && is_f32(args.x) && is_f32(args.add) &&
         is_f32(args.weight) && is_f32(args.out);
}

int launch_norm_few(const RmsNormArgs& args, const Stream& stream);

}  // namespace conclave::cuda
