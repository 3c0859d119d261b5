// Attention that leaves its output as the rows of the product that comes next, too. Host code alone.
#pragma once

#include <memory>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

// As int8 in `bank`, where `out` is dense and f32 and its rows are whole chunks; null where it cannot.
std::unique_ptr<CudaOp> make_banked_attention(const Attention& op, const Target& target, const BankOut& bank);

}  // namespace conclave::cuda
