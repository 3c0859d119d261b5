// Products of prefill rows, as their kernel takes them. Host code alone.
#pragma once

#include <memory>
#include <span>

#include "backends/cuda/cuda_op.h"
#include "backends/cuda/dense_rows.h"
#include "backends/cuda/prefill_rows_plan.h"
#include "backends/cuda/row_bank.h"

namespace conclave::cuda {

// Multiprocessors for prefill_rows; 0: the GPU has no such kernel, and prefill is computed as decode is.
int prefill_multiprocessors(const Target& target);

// Whether a product goes this way: by its phase, its weights and its layouts, never by the number of rows.
bool takes_prefill(const ProductViews& product, Phase phase, int room);
bool takes_prefill(const Matmul& op, const Target& target);
bool takes_prefill(const MoeGateUp& op, const Target& target);
bool takes_prefill(const MoeDown& op, const Target& target);

PrefillArgs prefill_args(const ProductViews& product, const RowBank& bank, const RowTable& table);

// Matmuls of the same x, which becomes bf16 once. `made`: where it is bf16 before the op begins.
std::unique_ptr<CudaOp> make_prefill(std::span<const Matmul* const> ops, const Target& target, const BankOut& made);

}  // namespace conclave::cuda
