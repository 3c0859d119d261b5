// moe_combine, moe_combine_residual and moe_combine_residual_norm. With the norm a token is one block's, whose threads
// share the row as rms_norm's do; without it the columns of a token may go to several blocks.
#pragma once

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

enum class CombineInto { out, residual, residual_norm };

struct CombineArgs {
  View rows;                   // [n_pairs, d] packed or [n_tokens, top_k, d] in slots
  View weights;                // f32 [n_tokens, top_k]
  View index;                  // i32 [n_tokens, top_k]: packed rows, or experts
  std::int64_t index_end = 0;  // an index below 0 or not below it adds nothing
  View shared;                 // [n_tokens, d], or not given
  const std::int32_t* live = nullptr;
  CombineInto into = CombineInto::out;
  View out;          // [n_tokens, d]: the output or the residual
  View norm_weight;  // [d], with the norm
  View normed;       // [n_tokens, d]
  float eps = 0;
  BankOut bank;           // of the normed rows
  bool early = false;     // the op before writes `rows` and `shared` alone, of what is read (launch.cuh)
  bool clusters = false;  // whether the GPU has them
};

inline constexpr int kCombineThreads = 128;  // without the norm
inline constexpr std::int64_t kCombineColumns = std::int64_t{kCombineThreads} * kRunLength;

constexpr LaunchPlan combine_plan(CombineInto into, std::int64_t n_tokens, std::int64_t d) {
  if (n_tokens == 0 || d == 0) return {};
  if (into == CombineInto::residual_norm) return {.blocks = std::min(n_tokens, kManyBlocks), .threads = row_threads(d)};
  return {.blocks = std::min(n_tokens * ceil_div(d, kCombineColumns), kManyBlocks), .threads = kCombineThreads};
}
static_assert(combine_plan(CombineInto::residual_norm, 1, 2048).blocks == 1);
static_assert(combine_plan(CombineInto::residual_norm, 1, 2048).threads == 256);
static_assert(combine_plan(CombineInto::out, 3, 1025).blocks == 6);
static_assert(combine_plan(CombineInto::residual, 0, 2048).blocks == 0);

int launch_combine(const CombineArgs& args, const Stream& stream);

}  // namespace conclave::cuda
