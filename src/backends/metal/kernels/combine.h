// One token's expert outputs, weighted and summed in slot order, into an output or the residual, with the next norm: by all
// threads of a threadgroup.
#pragma once

#include "backends/metal/kernels/kernel.h"

// Adds the sum to the residual row, as stored, and gives the normed row where there is one. `sums`: f32 in device memory
// that the same threads wrote, element d by thread d % count.
static inline void norm_row(device uchar* residual, int type, device uchar* normed, int normed_type,
                            const device uchar* weight, int weight_type, float eps, long d_model,
                            threadgroup float* shared, Place at) {
  float squares = 0.0f;
  for (long d = at.index; d < d_model; d += at.count) {
    const float value = load_float(type, residual, d);
    squares = fma(value, value, squares);
  }
  squares = group_sum(squares, shared, at);
  const float inverse = 1.0f / sqrt(squares / float(d_model) + eps);
  for (long d = at.index; d < d_model; d += at.count) {
    const float value = load_float(type, residual, d);
    store_float(normed_type, normed, d, value * inverse * load_float(weight_type, weight, d));
  }
}
