// A tensor of any rank as a list of its innermost rows.
#pragma once

#include "tensor/tensor.h"

namespace conclave {

// The r-th innermost row, counted in index order, as a tensor of rank 1.
inline Tensor flat_row(const Tensor& t, std::int64_t r) {
  Tensor row{.buffer = t.buffer, .byte_offset = t.byte_offset, .dtype = t.dtype, .rank = 1};
  for (int i = t.rank - 2; i >= 0; --i) {
    row.byte_offset += r % t.dim(i) * t.stride(i);
    r /= t.dim(i);
  }
  row.dims[0] = t.inner();
  row.strides[0] = t.stride(t.rank - 1);
  return row;
}

}  // namespace conclave
