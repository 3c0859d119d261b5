// What moe_route and moe_ffn share.
#pragma once

#include "backends/metal/launch.h"

namespace conclave::metal {

// The rule, without the tensors.
void set_route_args(RouteArgs& args, const RoutingRule& rule, bool has_bias);

}  // namespace conclave::metal
