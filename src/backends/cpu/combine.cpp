#include "backends/cpu/combine.h"

#include "backends/cpu/row_work.h"

namespace conclave {

void combine_token(const CombineInput& from, std::int64_t token, const RowKernels& row, float* sum, float* scratch) {
  const std::int64_t d_model = from.rows.inner();
  std::fill_n(sum, d_model, 0.0F);
  const auto* weights = reinterpret_cast<const float*>(row_address(from.weights, {token}));
  for (std::int64_t slot = 0; slot < from.weights.dim(1); ++slot) {
    const Tensor part = combined_row(from, token, slot);
    if (part.defined()) row.axpy(weights[slot], read_row(row, part, {}, scratch), sum, d_model);
  }
  if (from.shared.defined()) row.add(sum, read_row(row, from.shared, {token}, scratch), sum, d_model);
}

void add_to_residual(const Tensor& residual, std::int64_t token, const RowKernels& row, const float* sum,
                     float* scratch) {
  const float* x = read_row(row, residual, {token}, scratch);
  float* out = row_target(residual, {token}, scratch);
  row.add(x, sum, out, residual.inner());
  write_row(row, residual, {token}, out);
}

void norm_residual(const Tensor& residual, const NextNorm& next, std::int64_t token, const RowKernels& row,
                   float* scratch, float* weight_scratch) {
  const float* x = read_row(row, residual, {token}, scratch);
  float* out = row_target(next.out, {token}, scratch);
  row.rms_norm(x, read_row(row, next.weight, {}, weight_scratch), next.eps, out, residual.inner());
  write_row(row, next.out, {token}, out);
}

}  // namespace conclave
