// Matmuls in a row that do not need each other, as one op: queries, keys and values.
#pragma once

#include <span>

#include "backends/cpu/cpu_op.h"

namespace conclave {

// How many of the ops, from the first on, are such matmuls.
std::size_t matmuls_together(std::span<const Op> ops);
// These ops, all of them matmuls_together().
std::unique_ptr<CpuOp> make_matmuls(std::span<const Op> ops, const CpuKernels& kernels);

}  // namespace conclave
