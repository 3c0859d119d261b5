// Norm, rotation and cache write of heads in one pass: rms_norm of q's heads and of k's, where the model has them, rope
// of both, and kv_write, with the bits of those ops one after another. A warp has a head at a time, a lane eight
// neighbouring elements of it; the warps of a block have heads of one token, which share the sines and cosines of its
// position. Of heads of 64, 128 or 256 elements that lie as vectors, a warp has as many at once as its lanes hold, and a
// block has a token, or a part of it where tokens are few: what depends on the position or the place in a head is found
// once.
#pragma once

#include <bit>

#include "backends/cuda/kv_write_plan.h"
#include "backends/cuda/rms_norm_plan.h"
#include "backends/cuda/rope_plan.h"

namespace conclave::cuda {

struct HeadRowsArgs {
  RopeArgs rope;  // of q: x and out are one tensor, f32 [n_tokens, n_heads, d]
  View k;         // f32 [n_tokens, n_kv_heads, d]
  View q_norm;    // f32 | f16 | bf16 [d], or not given
  View k_norm;
  float eps = 0;
  KvWriteArgs write;
  bool early = false;   // nothing but q, k and v is written by the op before (launch.cuh)
  bool v_runs = false;  // eight elements of v are a vector of f32
  bool k_pool_runs = false;
  bool v_pool_runs = false;
};

inline constexpr int kHeadWarps = 8;
inline constexpr std::int64_t kHeadWidth = 256;  // elements of a head, at most
static_assert(is_warp_row(kHeadWidth) && kHeadWidth / 2 <= kRopePairs);

// Few tokens: a head for each warp. Many: a block has a token, so that its sines and cosines are computed once.
inline constexpr std::int64_t kHeadTokens = 512;
constexpr std::int64_t head_row_blocks(std::int64_t n_tokens, std::int64_t n_heads, std::int64_t n_kv_heads) {
  return n_tokens >= kHeadTokens ? 1 : ceil_div(n_heads + 2 * n_kv_heads, kHeadWarps);
}
constexpr LaunchPlan head_rows_plan(std::int64_t n_tokens, std::int64_t n_heads, std::int64_t n_kv_heads) {
  return {.blocks = n_tokens * head_row_blocks(n_tokens, n_heads, n_kv_heads), .threads = kHeadWarps * kWarp};
}
static_assert(head_rows_plan(1, 32, 4).blocks == 5 && head_rows_plan(2048, 32, 4).blocks == 2048);

inline constexpr int kManyHeadWarps = 4;
// Few tokens: blocks of a token, each with some of its heads in turns, no more than run beside a product, and no more
// than take fewer turns for it.
inline constexpr std::int64_t kFewHeadBlocks = 132;
inline constexpr int kFewHeadWarps = 8;                // of a block,
inline constexpr int kFewestHeadWarps = 4;             // or these, of up to so many tokens
inline constexpr std::int64_t kFewestHeadTokens = 32;  // H200: eight no faster at 32; at 64 32,420 to 32,950 tokens/s
constexpr int few_head_warps(std::int64_t n_tokens) {
  return n_tokens > kFewestHeadTokens ? kFewHeadWarps : kFewestHeadWarps;
}
constexpr LaunchPlan few_heads_plan(std::int64_t n_tokens, std::int64_t n_heads, std::int64_t n_kv_heads, int lanes) {
  const int warps = few_head_warps(n_tokens);
  const std::int64_t step = std::int64_t{warps} * kWarp / lanes;
  const std::int64_t steps = ceil_div(n_heads, step) + ceil_div(2 * n_kv_heads, step);
  const std::int64_t most = std::clamp<std::int64_t>(kFewHeadBlocks / n_tokens, 1, steps);
  const std::int64_t turns = ceil_div(steps, most);
  return {.blocks = n_tokens * ceil_div(steps, turns), .threads = warps * kWarp};
}
static_assert(few_heads_plan(8, 32, 4, 16).blocks == 40 && few_heads_plan(32, 32, 4, 16).blocks == 96 &&
              few_heads_plan(64, 32, 4, 16).blocks == 128 && few_heads_plan(64, 32, 4, 16).threads == 256);

// Whether heads go as lanes hold them.
inline bool fits_lanes(const HeadRowsArgs& args) {
  const std::int64_t d = args.rope.x.dims[2];
  const std::int64_t n_rot = args.rope.n_rot;
  const bool pairs = args.rope.neox ? n_rot % (2 * kRunLength) == 0 &&
                                          std::has_single_bit(static_cast<std::uint64_t>(n_rot / (2 * kRunLength)))
                                    : n_rot % kRunLength == 0;  // of lanes, or in a lane
  return args.rope.x.dims[0] > 0 && (d == 64 || d == 128 || d == 256) && pairs && args.v_runs && args.k_pool_runs &&
         args.v_pool_runs && args.write.v.dims[2] == d && args.rope.x.dims[1] > 0 && args.k.dims[1] > 0;
}

// Where each token's place is known, and where it is not.
int launch_many_heads(const HeadRowsArgs& args, const Stream& stream);
int launch_few_heads(const HeadRowsArgs& args, const Stream& stream);
int launch_head_rows(const HeadRowsArgs& args, const Stream& stream);

}  // namespace conclave::cuda
