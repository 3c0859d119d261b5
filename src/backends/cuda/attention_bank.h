// Attention that does more or starts sooner than the op alone. Host code alone.
#pragma once

#include <memory>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

// Its output is left in `bank`, too, where one is given, as int8 or, of prompts, as bf16: where `out` is dense and f32 and
// its rows are whole chunks. `early`: of what it reads the op before writes queries, keys and values alone. Null where it
// cannot.
std::unique_ptr<CudaOp> make_attention(const Attention& op, const Target& target, bool early, const BankOut& bank);

// Whether it goes as attention_mma_plan.h says.
bool takes_mma_attention(const Attention& op, const Target& target);

}  // namespace conclave::cuda
