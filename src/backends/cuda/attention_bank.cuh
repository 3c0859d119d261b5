// What `few` of attention leaves to the product that comes next.
#pragma once

#include "backends/cuda/attention_items.cuh"
#include "backends/cuda/attention_mma_plan.h"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {

// What the block has stored, whole chunks of a row, as int8. Every thread of the block comes here.
__device__ __forceinline__ void leave_in_bank(const AttentionArgs& args, const Rows& rows) {
  constexpr int kChunkLength = kWarp * kRunLength;
  __syncthreads();  // it is there
  const auto d_v = static_cast<int>(args.out.dims[2]);
  const int first = static_cast<int>(rows.first_head) * d_v;
  const std::byte* row = row_of(args.out, rows.first_token);
#pragma unroll 1
  for (int i = first + static_cast<int>(threadIdx.x) * kRunLength; i < first + rows.n * d_v;
       i += kUnitWarps * kChunkLength) {  // whole warps
    Run run;
    load_run<true>(DType::f32, row, i, 0, run);
    put_in_bank(args.bank, rows.first_token, i, args.out.dims[1] * d_v, run);
  }
}

}  // namespace conclave::cuda
