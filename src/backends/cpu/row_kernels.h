// What is done to rows of activations, element by element or with one sum over the row. All in f32, each operation
// rounded once, sums as lanes[i mod 16] folded in halves: the same bits on every instruction set. Any n, 0 too; an
// output may be an input.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/activation.h"
#include "ops/routing.h"
#include "tensor/dtype.h"

namespace conclave {

struct RowKernels {
  void (*load)(DType type, const std::byte* from, float* to, std::int64_t n);   // f32, f16, bf16
  void (*store)(DType type, const float* from, std::byte* to, std::int64_t n);  // rounds to nearest even
  // 16 values of each row, from [n_rows][16] to rows[r] + offset bytes. `past_caches`: they are not read soon, and whole
  // lines of memory go there at once; other threads see them where lines_stored() comes before they are told.
  void (*store_tile)(const float* from, std::byte* const* rows, std::int64_t offset, std::int64_t n_rows,
                     bool past_caches);
  void (*lines_stored)();
  void (*gate)(Activation act, const float* gate, const float* up, float* out, std::int64_t n);  // act(gate) * up
  void (*add)(const float* a, const float* b, float* out, std::int64_t n);
  void (*axpy)(float a, const float* x, float* y, std::int64_t n);     // y = fma(a, x, y)
  void (*scale)(float a, const float* x, float* out, std::int64_t n);  // out = a * x
  void (*rms_norm)(const float* x, const float* weight, float eps, float* out, std::int64_t n);
  void (*softmax)(const float* x, float scale, float* out, std::int64_t n);
  float (*dot)(const float* a, const float* b, std::int64_t n);  // 32 chains, folded in halves
  // (a, b) becomes (a cos - b sin, a sin + b cos): rope's rotation of n pairs.
  void (*rotate)(const float* cos, const float* sin, float* a, float* b, std::int64_t n);
  // The first of the largest elements, as ops/argmax.h says; its value goes to *largest, minus infinity where there is
  // none.
  std::int64_t (*argmax)(const float* x, std::int64_t n, float* largest);
  // Logits as moe_route ranks them: NaN to minus infinity, plus infinity to the largest finite float. Returns the
  // largest.
  float (*order)(const float* logits, float* out, std::int64_t n);
  // The canonical sum (ops/scoring.h) of score_exp(x - max).
  float (*exp_sum)(const float* x, float max, std::int64_t n);
  // moe_route's scores of logits that are ordered and not all minus infinity, with the bits of ops/scoring.h; `max` is
  // the largest logit.
  void (*score)(Score rule, const float* logits, float max, float* out, std::int64_t n);
};

}  // namespace conclave
