#include "backends/cuda/half_rows.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/launch_op.h"

namespace conclave::cuda {
namespace {

bool lies_on_16(const View& v) {
  bool aligned = reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0;
  for (int i = 0; i + 1 < v.rank; ++i) aligned = aligned && v.strides[i] % 16 == 0;
  return aligned;
}

UnitArgs half_args(const Matmul& op) {
  const View w = view_of(op.w);
  const View x = view_of(op.x);
  const View bias = view_of(op.bias);
  const View out = view_of(op.out);
  const auto rows = static_cast<std::int32_t>(x.dims[0]);
  return {.table = {.live = ints_of(op.live), .n_slots = rows, .n_from = rows, .n_rows = rows},
          .w = w.data,
          .w_column = w.strides[0],
          .x = x.data,
          .x_stride = x.strides[0],
          .out = out.data,
          .out_stride = out.strides[0],
          .bias = bias.data,
          .n = static_cast<std::int32_t>(w.dims[0]),
          .k = static_cast<std::int32_t>(w.dims[1]),
          .type = w.type,
          .out_type = out.type,
          .bias_type = bias.type};
}

}  // namespace

bool half_rows_fit(const View& w, const View& x, const View& out) {
  const std::int64_t k = w.dims[w.rank - 1];
  return (w.type == DType::f16 || w.type == DType::bf16) && x.type == DType::f32 && k > 0 && k % kHalfStep == 0 &&
         half_batch(1, k) > 0 && lies_on_16(w) && lies_on_16(x) && even_stride(x).has_value() &&
         even_stride(out).has_value();
}

bool takes_half_rows(const View& w, const View& x, const View& out) {
  return w.rank == 2 && x.rank == 2 && x.dims[0] <= kHalfMatrixRows && w.dims[0] >= kHalfMatrixColumns &&
         half_rows_fit(w, x, out);
}

bool goes_beside_halves(const Matmul& op) {
  const View x = view_of(op.x);
  return x.rank == 2 && x.dims[0] > 0 && x.dims[0] <= kHalfMatrixRows && op.w.dim(0) > 0 &&
         op.w.dim(0) < kHalfWanted * 2 * kHalfColumns && half_rows_fit(view_of(op.w), x, view_of(op.out));
}

std::unique_ptr<CudaOp> make_half_matrices(std::span<const Matmul* const> ops) {
  HalfMatricesArgs args;
  for (std::size_t i = 0; i < kHalfMatrices; ++i) args.of[i] = half_args(*ops[i]);
  return launch_op(launch_half_matrices, args, "matmul of " + shape_text(ops[0]->x.shape()));
}

}  // namespace conclave::cuda
