// A norm of rows that experts take, and their router's product. Host code alone.
#pragma once

#include <optional>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/normed_router_plan.h"

namespace conclave::cuda {

// Where the two go by one launch.
std::optional<NormedRouterArgs> normed_router_of(const RmsNorm& norm, const Matmul& router, const Target& target);

}  // namespace conclave::cuda
