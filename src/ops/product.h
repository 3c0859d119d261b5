// The one matrix product, plainly: out[m,n] = sum over k of x[m,k] * w[n,k], accumulated in f64 over decoded weights.
#pragma once

#include <vector>

#include "ops/host_access.h"

namespace conclave {

using Rows = std::vector<std::vector<float>>;

inline double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += static_cast<double>(a[k]) * static_cast<double>(b[k]);
  return sum;
}

// Calls emit(m, n, value) for every row of x and every row of w [n, k] from `first` on, `count` of them.
template <class Emit>
void product(const Rows& x, const Tensor& w, std::int64_t first, std::int64_t count, Emit&& emit) {
  std::vector<float> weights;
  for (std::int64_t n = first; n < first + count && !x.empty(); ++n) {
    load_row(w, {n}, weights);
    for (std::size_t m = 0; m < x.size(); ++m) emit(m, n, dot(x[m], weights));
  }
}

template <class Emit>
void product(const Rows& x, const Tensor& w, Emit&& emit) {
  product(x, w, 0, w.dim(0), emit);
}

}  // namespace conclave
