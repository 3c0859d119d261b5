// The models whose shapes are benchmarked.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ops/routing.h"

namespace conclave::bench {

struct ModelShape {
  std::string_view name;
  std::int64_t d_model;
  std::int64_t d_ff;
  std::int64_t n_experts;
  std::int64_t top_k;
  std::int64_t n_heads;
  std::int64_t n_kv_heads;
  std::int64_t d_head;
  std::int64_t n_vocab;
  std::int64_t d_shared;  // of the shared expert; 0: none
  Score score;
  bool renormalize;

  RoutingRule rule() const { return {.top_k = top_k, .score = score, .renormalize = renormalize}; }
};

inline constexpr std::string_view kMainModel = "qwen3-30b-a3b";  // the targets are told for its layer

std::span<const ModelShape> model_shapes();
// Throws an Error with the known names where there is none of this name.
const ModelShape& model_shape(std::string_view name);

}  // namespace conclave::bench
