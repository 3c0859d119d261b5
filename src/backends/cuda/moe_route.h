// A routing rule and its tensors as kernels take them. Host code alone.
#pragma once

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/moe_route_plan.h"
#include "backends/cuda/row_bank.h"

namespace conclave::cuda {

// `bias` and `expert_scale` may not be given. Throws an Error where there are too many experts.
RouteRule route_rule(const RoutingRule& rule, std::int64_t n_experts, const Tensor& bias, const Tensor& expert_scale);

// All but the scratch and the bank.
RouteArgs route_args(const MoeRoute& op);

// Both in one launch, or in two; null where they cannot be. `group` sorts what `route` chooses. `rows`: of the op
// behind them, or null; one launch makes them, too, where that op would.
std::unique_ptr<CudaOp> make_route_group(const MoeRoute& route, const MoeGroup& group, const Target& target,
                                         OpBank* rows);

}  // namespace conclave::cuda
