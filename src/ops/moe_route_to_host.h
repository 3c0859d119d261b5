// moe_route_to_host: moe_route, with the routing copied into host memory as part of the op. After run() the host copy
// is there; this is the one op that waits for the device.
//
// The device keeps scratch for the copy: it grows at the first larger shape and is kept. Growing while a graph is
// captured is an error: run the op once at its largest shape first.
#pragma once

#include "ops/moe_route.h"

namespace conclave {

struct MoeRouteToHost {
  static constexpr std::string_view kName = "moe_route_to_host";
  static constexpr bool kInPlace = false;

  Tensor logits;        // f32 | f16 | bf16 [n_tokens, n_experts]
  Tensor bias;          // f32 [n_experts], optional
  Tensor expert_scale;  // f32 [n_experts], optional
  Tensor live;          // i32 [1], optional
  RoutingRule rule;
  Routing out;  // in HOST memory: experts and weights [n_tokens, top_k]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "logits", op.logits);
    v.tensor(weight, "bias", op.bias);
    v.tensor(weight, "expert_scale", op.expert_scale);
    v.tensor(in, "live", op.live);
    visit_rule(v, op.rule);
    v.tensor(host_out, "experts", op.out.experts);
    v.tensor(host_out, "weights", op.out.weights);
  }

  // The same routing, left where `out` says.
  MoeRoute route() const {
    return {.logits = logits, .bias = bias, .expert_scale = expert_scale, .live = live, .rule = rule, .out = out};
  }
  // Bytes of device scratch the copy needs.
  std::int64_t scratch_bytes() const { return logits.dim(0) * rule.top_k * 8; }
};

void validate(const MoeRouteToHost& op);
void reference(const MoeRouteToHost& op);

}  // namespace conclave
