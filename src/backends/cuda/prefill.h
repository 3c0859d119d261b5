// Products of prefill rows, as their kernels take them. Host code alone.
#pragma once

#include <memory>
#include <span>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/dense_rows.h"
#include "backends/cuda/half_prefill_plan.h"
#include "backends/cuda/row_bank.h"

namespace conclave::cuda {

// Multiprocessors for prefill_rows and half_prefill; 0: the GPU has no such kernel, and prefill is computed as decode is.
int prefill_multiprocessors(const Target& target);

// Whether a product goes this way: by its phase, its weights and its layouts, never by the number of rows.
bool takes_prefill(const ProductViews& product, Phase phase, int room);
bool takes_prefill(const Matmul& op, const Target& target);
bool takes_prefill(const MoeGateUp& op, const Target& target);
bool takes_prefill(const MoeDown& op, const Target& target);

PrefillArgs prefill_args(const ProductViews& product, const RowBank& bank, const RowTable& table);
// By the kernel for weights of their type.
int launch_prefill(const PrefillArgs& args, const RowBank& bank, int multiprocessors, const Stream& stream);

// Matmuls of the same x, which becomes bf16 or f16 once. `made`: where it is so before the op begins.
std::unique_ptr<CudaOp> make_prefill(std::span<const Matmul* const> ops, const Target& target, const BankOut& made);

}  // namespace conclave::cuda
