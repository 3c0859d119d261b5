// Products of one row at a time, as their kernels take them. Host code alone.
#pragma once

#include <optional>

#include "backends/cuda/one_row_plan.h"
#include "ops/matmul.h"

namespace conclave::cuda {

// Where a matmul is such products.
std::optional<OneRowArgs> one_row_of(const Matmul& op);

}  // namespace conclave::cuda
