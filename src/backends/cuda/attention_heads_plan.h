// attention of one token with its heads in the same launch: what head_rows_plan.h does, and then `apart` of
// attention_mma_plan.h, with the bits of both.
#pragma once

#include "backends/cuda/attention_mma_plan.h"
#include "backends/cuda/head_rows_plan.h"

namespace conclave::cuda {

// Whether the rows of heads have room in a block.
constexpr bool fits_attention_heads(const MmaPlan& plan) {
  const std::int64_t rows = plan.few.n_heads + 1;  // of queries, and the key
  return plan.few_launch.cluster > 1 && plan.few.head_parts == 1 &&
         rows * plan.width * 4 <= apart_result_bytes(plan.width);
}
static_assert(fits_attention_heads(mma_plan({1, 64, 4, 128, 512}, 128, 132, 32)));
static_assert(!fits_attention_heads(mma_plan({1, 64, 4, 256, 512}, 256, 132, 16)));
static_assert(fits_attention_heads(mma_plan({1, 60, 4, 256, 512}, 256, 132, 16)));
static_assert(!fits_attention_heads(mma_plan({1, 80, 4, 64, 512}, 64, 132, 32)));

// `readers`: [n_kv_heads], 0 between runs.
int launch_attention_heads(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept,
                           const HeadRowsArgs& heads, std::int32_t* readers, const Stream& stream);

}  // namespace conclave::cuda
