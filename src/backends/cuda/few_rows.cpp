#include "backends/cuda/few_rows_plan.h"

#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

bool units_fit(const View& w) {
  if (w.dims[w.rank - 1] == 0) return false;
  if (w.type == DType::q6_k) return w.planes;
  if (!is_affine(w.type) || w.planes) return false;
  bool aligned = reinterpret_cast<std::uintptr_t>(w.data) % 16 == 0;
  for (int i = 0; i + 1 < w.rank; ++i) aligned = aligned && w.strides[i] % 16 == 0;
  return aligned;
}

bool blocks_fit(const View& w) {
  return w.planes && is_block_32(w.type) && w.dims[w.rank - 1] > 0;
}

}  // namespace conclave::cuda
