// Other views of a dense tensor.
#pragma once

#include "tensor/tensor.h"

namespace conclave {

// [n, n_heads * d_head] as [n, n_heads, d_head].
inline Tensor as_heads(const Tensor& t, std::int64_t d_head) {
  Tensor heads = t;
  heads.rank = 3;
  heads.dims = {t.dim(0), t.dim(1) / d_head, d_head};
  heads.strides = {t.stride(0), d_head * t.stride(1), t.stride(1)};
  return heads;
}

// The first n of the outermost dimension.
inline Tensor first(const Tensor& t, std::int64_t n) {
  return slice(t, 0, 0, n);
}

}  // namespace conclave
