// Traces to report on.
#pragma once

#include <string>

#include "report/routing_trace.h"

namespace conclave::test {

// Two layers, four experts, two per token, four tokens. Layer 0 uses experts 0 and 1 alone; layer 1 uses all evenly.
inline RoutingTrace small_trace() {
  RoutingTrace trace;
  trace.model = "tiny";
  trace.architecture = "qwen3moe";
  trace.n_layers = 2;
  trace.n_experts = 4;
  trace.top_k = 2;
  trace.layer_numbers = {1, 3};
  trace.tokens = {{5, "Once"}, {6, " upon"}, {7, "\n"}, {8, "\xe2\x82"}};
  trace.experts = {0, 1, 1, 0, 0, 1, 1, 0, /* layer 3 */ 0, 1, 2, 3, 3, 2, 1, 0};
  trace.weights = {0.75F, 0.25F, 0.5F, 0.5F, 0.75F, 0.25F, 0.5F, 0.5F, 0.6F, 0.4F, 0.6F, 0.4F, 0.6F, 0.4F, 0.6F, 0.4F};
  return trace;
}

// Token t of layer l uses experts l + t, l + t + 1 ... around the circle.
inline RoutingTrace wheel_trace(std::int64_t n_layers, std::int64_t n_experts, std::int64_t top_k,
                                std::int64_t n_tokens) {
  RoutingTrace trace;
  trace.model = "wheel";
  trace.n_layers = n_layers;
  trace.n_experts = n_experts;
  trace.top_k = top_k;
  for (std::int64_t t = 0; t < n_tokens; ++t) trace.tokens.push_back({static_cast<std::int32_t>(t), "x"});
  for (std::int64_t l = 0; l < n_layers; ++l) {
    for (std::int64_t t = 0; t < n_tokens; ++t) {
      for (std::int64_t s = 0; s < top_k; ++s) {
        trace.experts.push_back(static_cast<std::int32_t>((l + t + s) % n_experts));
        trace.weights.push_back(1.0F / static_cast<float>(top_k));
      }
    }
  }
  return trace;
}

}  // namespace conclave::test
