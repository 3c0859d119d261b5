// rope as its kernels take it. Host code alone.
#pragma once

#include "backends/cuda/rope_plan.h"
#include "ops/rope.h"

namespace conclave::cuda {

RopeArgs rope_args(const Rope& op);

}  // namespace conclave::cuda
