// attention of one token with its heads in the same launch: what head_rows_plan.h does, and then `apart` of
// attention_mma_plan.h, with the bits of both.
#pragma once

#include "backends/cuda/attention_mma_plan.h"
#include "backends/cuda/head_rows_plan.h"

namespace conclave::cuda {

// `readers`: [n_kv_heads], 0 between runs.
int launch_attention_heads(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept,
                           const HeadRowsArgs& heads, std::int32_t* readers, const Stream& stream);

}  // namespace conclave::cuda
