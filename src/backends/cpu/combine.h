// One token's part of the combines, in the pieces that moe_combine, moe_combine_residual and moe_combine_residual_norm
// are made of. `sum` and every scratch have room for d_model floats.
#pragma once

#include "backends/cpu/row_kernels.h"
#include "ops/moe_combine_residual_norm.h"

namespace conclave {

// sum = the token's rows, slots ascending, sum = fma(weight, row, sum) from 0; then + shared. All in f32.
void combine_token(const CombineInput& from, std::int64_t token, const RowKernels& row, float* sum, float* scratch);

// residual[token] += sum, rounded to f32 and stored in the residual's type.
void add_to_residual(const Tensor& residual, std::int64_t token, const RowKernels& row, const float* sum,
                     float* scratch);

// next.out[token] = the rms_norm of the residual as stored.
void norm_residual(const Tensor& residual, const NextNorm& next, std::int64_t token, const RowKernels& row,
                   float* scratch, float* weight_scratch);

}  // namespace conclave
