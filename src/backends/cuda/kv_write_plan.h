// kv_write: a block takes one token, or eight where there are many, and first looks whether a later token names the
// same place: then that one's value stands and this one's is never written. Many tokens have their places written down
// by a kernel before, so that looking is one read per token.
#pragma once

#include "backends/cuda/kv_view_plan.h"

namespace conclave::cuda {

inline constexpr int kKvThreads = 256;
inline constexpr int kKvTokens = 8;                // of a block, where there are many
inline constexpr std::int64_t kKvFewTokens = 256;  // up to here each block finds places on its own

struct KvWriteArgs {
  View k;
  View v;
  View seqs;
  View positions;
  const std::int32_t* live = nullptr;
  KvPages kv;
  View k_pool;
  View v_pool;
  std::int64_t* places = nullptr;  // [n_tokens], scratch where there are many tokens
};

constexpr bool kv_has_places(std::int64_t n_tokens) {
  return n_tokens > kKvFewTokens;
}
constexpr std::int64_t kv_write_scratch(std::int64_t n_tokens) {
  return kv_has_places(n_tokens) ? n_tokens * 8 : 0;
}
constexpr LaunchPlan kv_places_plan(std::int64_t n_tokens) {
  if (!kv_has_places(n_tokens)) return {};
  return {.blocks = std::min(ceil_div(n_tokens, kKvThreads), std::int64_t{1} << 20), .threads = kKvThreads};
}
constexpr LaunchPlan kv_write_plan(std::int64_t n_tokens) {
  const std::int64_t each = kv_has_places(n_tokens) ? kKvTokens : 1;
  return {.blocks = std::min(ceil_div(n_tokens, each), std::int64_t{1} << 20), .threads = kKvThreads};
}
static_assert(kv_write_plan(0).blocks == 0 && kv_write_plan(256).blocks == 256 && kv_write_plan(257).blocks == 33);
static_assert(kv_places_plan(256).blocks == 0 && kv_places_plan(257).blocks == 2);

int launch_kv_write(const KvWriteArgs& args, const Stream& stream);

}  // namespace conclave::cuda
