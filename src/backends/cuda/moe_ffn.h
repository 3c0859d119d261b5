// moe_ffn and the combine at its end, which may also leave the normed rows as int8 for the product that comes next.
// Host code.
#pragma once

#include <memory>

#include "backends/cuda/combine_plan.h"
#include "backends/cuda/cuda_op.h"

namespace conclave::cuda {

std::unique_ptr<CudaOp> make_combine_norm(const MoeCombineResidualNorm& op, const Target& target, const BankOut& bank,
                                          bool early);
// `bank` where there is a norm, of f32 rows that can be banked. `made`: x as int8, where it is there already.
std::unique_ptr<CudaOp> make_ffn(const MoeFfn& op, const Target& target, const BankOut& bank, const BankOut& made);

}  // namespace conclave::cuda
