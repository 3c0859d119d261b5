// The gated activations, and the functions they need, in f32.
#pragma once

#include <cmath>

#include "backends/cuda/mma.cuh"
#include "ops/activation.h"

namespace conclave::cuda {

// exp(x) for every x, off by at most 1.3 * 2^-24 of itself; overflow is infinity, NaN stays NaN. The CPU backend's
// steps.
__device__ __forceinline__ float row_exp(float x) {
  x = x < -104.0F ? -104.0F : x;  // both leave a NaN as it is
  x = x > 89.0F ? 89.0F : x;
  const int n = __float2int_rn(x * 1.44269504F);
  const float whole = static_cast<float>(n);
  float r = fmaf(whole, -0.693145752F, x);  // ln 2, upper bits: the product is exact
  r = fmaf(whole, -1.42860677e-6F, r);      // ln 2, the rest
  float p = 1.0F / 5040.0F;
  p = fmaf(p, r, 1.0F / 720.0F);
  p = fmaf(p, r, 1.0F / 120.0F);
  p = fmaf(p, r, 1.0F / 24.0F);
  p = fmaf(p, r, 1.0F / 6.0F);
  p = fmaf(p, r, 0.5F);
  p = fmaf(p, r, 1.0F);
  p = fmaf(p, r, 1.0F);
  const int half = n >> 1;
  return p * __int_as_float((half + 127) << 23) * __int_as_float((n - half + 127) << 23);
}

// 1 / (1 + exp(-x)) through exp of a non-positive number.
__device__ __forceinline__ float sigmoid_of(float x) {
  const float e = row_exp(-fabsf(x));
  return (x >= 0.0F ? 1.0F : e) / (1.0F + e);
}

// x * sigmoid(2 z) * up = (over / under) * up_part. A small sigmoid is root * root, and one root goes to x, one to up:
// nothing underflows before the product itself does. A NaN in x stays; the limit at minus infinity is 0, not -inf * 0.
struct SigmoidParts {
  float over;
  float under;  // 1 to 2
  float up_part;
};
__device__ __forceinline__ SigmoidParts sigmoid_parts(float x, float z, float up) {
  const float root = row_exp(-fabsf(z));
  const float part = z < 0.0F ? root : 1.0F;
  const float bounded = x < -1000.0F ? -1000.0F : x;
  return {bounded * part, fmaf(root, root, 1.0F), up * part};
}

__device__ __forceinline__ SigmoidParts gated_parts(Activation act, float gate, float up) {
  if (act == Activation::silu) return sigmoid_parts(gate, 0.5F * gate, up);
  return sigmoid_parts(gate, 0.7978845608F * fmaf(0.044715F * gate * gate, gate, gate), up);
}

// act(gate) * up
__device__ __forceinline__ float gated(Activation act, float gate, float up) {
  const SigmoidParts y = gated_parts(act, gate, up);
  return y.over / y.under * y.up_part;
}

// over / under to the bit, for `under` from 1 to 2 and |over| from 2^-100 to 2^100: the steps of IEEE division without
// its other cases, for which it would branch.
__device__ __forceinline__ float plain_quotient(float over, float under) {
  float inverse = reciprocal(under);
  inverse = fmaf(inverse, fmaf(-under, inverse, 1.0F), inverse);
  const float y = over * inverse;
  return fmaf(inverse, fmaf(-under, y, over), y);
}
// act(gate) * up, off by at most 2^-16 of itself: for sums of products of bf16 numbers. The steps of gated(), with the
// GPU's own power and reciprocal.
__device__ __forceinline__ float gated_roughly(Activation act, float gate, float up) {
  const float z = act == Activation::silu ? 0.5F * gate : 0.7978845608F * fmaf(0.044715F * gate * gate, gate, gate);
  const float root = power_of_two(-1.44269504F * fabsf(z));
  const float part = z < 0.0F ? root : 1.0F;
  const float over = fmaxf(gate, -1000.0F) * part;  // a NaN is in `root`, too
  return over * reciprocal(fmaf(root, root, 1.0F)) * (up * part);
}
// Four at once, side by side: y[i] = act(y[i]) * up[i].
__device__ __forceinline__ void gated_4(Activation act, float (&y)[4], const float (&up)[4]) {
  SigmoidParts parts[4];
  bool usual = true;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    parts[i] = gated_parts(act, y[i], up[i]);
    usual = usual && fabsf(parts[i].over) >= 0x1p-100F && fabsf(parts[i].over) <= 0x1p100F;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) y[i] = plain_quotient(parts[i].over, parts[i].under) * parts[i].up_part;
  if (usual) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) y[i] = parts[i].over / parts[i].under * parts[i].up_part;
}

}  // namespace conclave::cuda
