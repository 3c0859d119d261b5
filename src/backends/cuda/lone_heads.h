// One token's heads and their attention in one launch (lone_heads_plan.h), or two (long_heads_plan.h). Host code alone.
#pragma once

#include <memory>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/head_rows_plan.h"

namespace conclave::cuda {

// Null where they go one by one. q is written by the heads' rope, the cache by their kv_write, of the same token. `early`:
// the op before them is a kernel that waits for all before it, and writes nothing that attention reads but the heads.
std::unique_ptr<CudaOp> make_lone_heads(const HeadRowsArgs& heads, const Attention& op, bool early,
                                        const Target& target);

}  // namespace conclave::cuda
