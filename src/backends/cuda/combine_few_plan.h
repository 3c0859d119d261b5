// moe_combine_residual_norm of a few tokens of f32, which wait for one another: what decoding some sequences needs.
//
// A token is a cluster's: each block has whole chunks of 256 of its columns, a warp each, so that sums are those of
// rms_norm. A thread asks for its elements of all slots at once, and for all else before the kernel waits, where that
// was not written by the op before. One exchange of the warps' sums makes the norm's; each block has all of them.
#pragma once

#include "backends/cuda/combine_plan.h"
#include "backends/cuda/spread_plan.h"

namespace conclave::cuda {

inline constexpr int kCombineSlots = 8;                 // of a token, at most
inline constexpr std::int64_t kCombineFewTokens = 256;  // at most
inline constexpr int kCombineParts = 8;                 // of a token, at most
inline constexpr std::int64_t kCombineBlocks = 132;     // about what runs at once

// Blocks of a token.
constexpr int combine_parts(std::int64_t n_tokens, std::int64_t d, bool clusters) {
  const std::int64_t warps = d / (kRunLength * kWarp);
  int parts = clusters ? kCombineParts : 1;
  while (parts > 1 && (warps % parts != 0 || n_tokens * parts > kCombineBlocks)) parts /= 2;
  return parts;
}
constexpr LaunchPlan combine_few_plan(std::int64_t n_tokens, std::int64_t d, bool clusters) {
  const int parts = combine_parts(n_tokens, d, clusters);
  return {.blocks = n_tokens * parts,
          .threads = row_threads(d) / parts,
          .shared_bytes = clusters && n_tokens * parts > kCombineBlocks / 2 ? kSpreadBytes : 0,
          .cluster = parts};
}
static_assert(combine_few_plan(8, 2048, true).blocks == 64 && combine_few_plan(8, 2048, true).threads == 32);
static_assert(combine_few_plan(64, 2048, true).blocks == 128 && combine_few_plan(64, 2048, true).threads == 128);
static_assert(combine_parts(100, 2048, true) == 1 && combine_parts(8, 1792, true) == 1);

inline bool takes_combine_few(const CombineArgs& args) {
  const std::int64_t d = args.out.dims[1];
  const auto is_f32 = [](const View& v) { return v.data == nullptr || v.type == DType::f32; };
  return args.into == CombineInto::residual_norm && args.out.dims[0] > 0 && args.out.dims[0] <= kCombineFewTokens &&
         args.weights.dims[1] <= kCombineSlots && d > 0 && d % (kRunLength * kWarp) == 0 && row_passes(d) == 1 &&
         is_f32(args.rows) && is_f32(args.shared) && is_f32(args.out) && is_f32(args.norm_weight) &&
         is_f32(args.normed);
}

// Views are such that they take vectors.
int launch_combine_few(const CombineArgs& args, const Stream& stream);

}  // namespace conclave::cuda
