// What moe_route and moe_ffn share.
#pragma once

#include "backends/metal/launch.h"

namespace conclave::metal {

// The rule, without the tensors.
void set_route_args(RouteArgs& args, const RoutingRule& rule, bool has_bias);

// What routing reads, and what it needs on the way. `args` are the launch's, or a part of them.
template <class Args, class Route>
void bind_route_inputs(Launch<Args>& launch, RouteArgs& args, const Route& op, ScratchLayout& scratch) {
  args.logits = launch.in(RouteArgs::kLogits, op.logits);
  args.bias = launch.in(RouteArgs::kBias, op.bias);
  args.expert_scale = launch.in(RouteArgs::kScale, op.expert_scale);
  args.live = launch.in(RouteArgs::kLive, op.live);
  if (op.rule.n_groups > 1) {
    args.groups_in = launch.out(RouteArgs::kGroupsIn, scratch_part(scratch, op.logits.dim(0) * op.rule.n_groups, 4));
  }
  set_route_args(args, op.rule, op.bias.defined());
}
// The same, and what it writes on the device.
template <class Args>
void bind_route(Launch<Args>& launch, RouteArgs& args, const MoeRoute& op, ScratchLayout& scratch) {
  bind_route_inputs(launch, args, op, scratch);
  args.experts = launch.out(RouteArgs::kExperts, op.out.experts);
  args.weights = launch.out(RouteArgs::kWeights, op.out.weights);
  args.no_finite = launch.out(RouteArgs::kNoFinite, op.out.no_finite);
  args.counts = launch.out(RouteArgs::kTimesChosen, op.out.counts);
}

}  // namespace conclave::metal
