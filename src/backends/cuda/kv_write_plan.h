// kv_write: a block takes one token and first looks whether a later token names the same place: then that one's value
// stands and this one's is never written. Where there are many tokens a kernel before it does the looking, for some of
// them at a time.
#pragma once

#include "backends/cuda/kv_view_plan.h"

namespace conclave::cuda {

inline constexpr int kKvThreads = 256;
inline constexpr int kPlaceThreads = 512;
inline constexpr int kPlaceTokens = 16;            // whose places a block finds
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
  std::int64_t* places = nullptr;  // [n_tokens], scratch where there are many: where a token goes; -1: nowhere
};

constexpr bool kv_has_places(std::int64_t n_tokens) {
  return n_tokens > kKvFewTokens;
}
constexpr std::int64_t kv_write_scratch(std::int64_t n_tokens) {
  return kv_has_places(n_tokens) ? n_tokens * 8 : 0;
}
constexpr LaunchPlan kv_places_plan(std::int64_t n_tokens) {
  if (!kv_has_places(n_tokens)) return {};
  return {.blocks = std::min(ceil_div(n_tokens, kPlaceTokens), std::int64_t{1} << 20), .threads = kPlaceThreads};
}
constexpr LaunchPlan kv_write_plan(std::int64_t n_tokens) {
  return {.blocks = std::min(n_tokens, std::int64_t{1} << 20), .threads = kKvThreads};
}
static_assert(kv_write_plan(0).blocks == 0 && kv_write_plan(257).blocks == 257);
static_assert(kv_places_plan(256).blocks == 0 && kv_places_plan(257).blocks == 17);

// Fills args.places, where there are many tokens.
int launch_kv_places(const KvWriteArgs& args, const Stream& stream);
// The same, and then the cache.
int launch_kv_write(const KvWriteArgs& args, const Stream& stream);

}  // namespace conclave::cuda
