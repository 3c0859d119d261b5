// Logits and rules that the routing cases share (moe_route, moe_route_to_host, moe_ffn).
#pragma once

#include <optional>

#include "support/case.h"

namespace conclave::test {

enum class Logits {
  normal,
  equal,       // all the same: ties decide everything
  few_values,  // small integers: many ties
  signed_zeros,
  specials,  // NaN and infinities sprinkled in
  hopeless,  // some rows with nothing but NaN and minus infinity
  wide,      // up to 60: sigmoids round to 0 and 1
  large,     // up to 1e30
};

struct RouteShape {
  std::int64_t n_tokens = 5;
  std::int64_t n_experts = 8;
  RoutingRule rule;
  DType type = DType::f32;
  Logits logits = Logits::normal;
  bool bias = false;
  bool expert_scale = false;
  bool counter = false;
  std::int32_t counter_start = 40;
  std::optional<std::int32_t> counts;  // what the experts' counters begin with
  std::optional<std::int64_t> live;
};

Tensor logits_tensor(CaseBuilder& b, const RouteShape& shape);
RouteShape random_route(Rng& rng, std::int64_t max_tokens, std::int64_t max_experts);

// i32 [n_experts], all of them shape.counts.
Tensor count_tensor(CaseBuilder& b, const RouteShape& shape);

// Inputs of a route, without its outputs.
MoeRoute route_inputs(CaseBuilder& b, const RouteShape& shape);

}  // namespace conclave::test
