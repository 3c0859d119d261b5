// embed: blocks take a stretch of columns of a token each, and threads neighbouring elements.
#pragma once

#include <algorithm>

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

struct EmbedArgs {
  View ids;    // [n_tokens]
  View table;  // any weight type [n_vocab, d]
  View out;    // [n_tokens, d]
  const std::int32_t* live = nullptr;
};

inline constexpr int kEmbedThreads = 256;
inline constexpr std::int64_t kEmbedColumns = 1024;

constexpr LaunchPlan embed_plan(std::int64_t n_tokens, std::int64_t d) {
  return {.blocks = std::min(n_tokens * ceil_div(d, kEmbedColumns), kManyBlocks), .threads = kEmbedThreads};
}
static_assert(embed_plan(3, 1025).blocks == 6 && embed_plan(0, 64).blocks == 0 && embed_plan(4, 0).blocks == 0);

int launch_embed(const EmbedArgs& args, const Stream& stream);

}  // namespace conclave::cuda
