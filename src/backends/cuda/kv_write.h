// kv_write as its kernels take it. Host code alone.
#pragma once

#include "backends/cuda/kv_write_plan.h"
#include "ops/kv_write.h"

namespace conclave::cuda {

// All but the places.
KvWriteArgs kv_write_args(const KvWrite& op);

}  // namespace conclave::cuda
