// attention with the heads of its token in one launch. Host code alone.
#pragma once

#include <memory>

#include "backends/cuda/attention_heads_plan.h"
#include "backends/cuda/cuda_op.h"

namespace conclave::cuda {

// Null where attention goes by itself. The ops are neighbours: q is written by the heads' rope, the cache by their
// kv_write, of the same tokens.
std::unique_ptr<CudaOp> make_attention_heads(const Attention& op, const HeadRowsArgs& heads, const Target& target);

}  // namespace conclave::cuda
