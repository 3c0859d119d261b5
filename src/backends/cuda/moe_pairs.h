// An MoE layer with few pairs of token and expert: each pair goes through its expert by itself, so that nothing has to be
// grouped. Where tokens share an expert its weights are read again, mostly from the cache. Host code alone.
#pragma once

#include <memory>

#include "backends/cuda/cuda_op.h"
#include "ops/moe_ffn.h"

namespace conclave::cuda {

// Few pairs, weights of superblocks, f32 between the products, and nothing for prefill_rows.
bool goes_by_pairs(const MoeFfn& op, const Target& target);
// Route, gate, up and down: row p of `hidden` and of `expert_out` is pair p's.
std::unique_ptr<CudaOp> make_pairs(const MoeFfn& op, const Target& target);
// What a combine takes then.
CombineInput by_pairs(CombineInput from, const MoeFfn& op);

}  // namespace conclave::cuda
