#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/half_rows_plan.h"

namespace conclave::cuda {
namespace {

bool lies_on_16(const View& v) {
  bool aligned = reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0;
  for (int i = 0; i + 1 < v.rank; ++i) aligned = aligned && v.strides[i] % 16 == 0;
  return aligned;
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

}  // namespace conclave::cuda
