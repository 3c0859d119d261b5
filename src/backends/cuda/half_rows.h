// Products of few rows with weights of 16 bits, side by side. Host code alone.
#pragma once

#include <memory>
#include <span>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/half_rows_plan.h"
#include "ops/matmul.h"

namespace conclave::cuda {

// Whether a matmul can be one of kHalfMatrices in one launch.
bool goes_beside_halves(const Matmul& op);
// So many matmuls of the same x and type.
std::unique_ptr<CudaOp> make_half_matrices(std::span<const Matmul* const> ops);

}  // namespace conclave::cuda
