// The arithmetic that decides which expert is chosen: src/ops/scoring.h restated step for step, so that equal logits give
// equal experts on every backend. And the order of ranks as integers.
#pragma once

#include "backends/metal/kernels/kernel.h"

// exp(x) for x <= 0; 0 below ln(2^-126), so that no subnormal is ever made. NaN gives 0.
static inline float score_exp(float x) {
  if (!(x >= -87.33654f)) return 0.0f;
  const float n = rint(x * 1.44269504f);
  return exp_of_rest(x, n) * as_type<float>(uint(int(n) + 127) << 23);
}

static inline float score_sigmoid(float x) {
  const float e = score_exp(-fabs(x));
  return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

static inline float score_sqrt_softplus(float x) {
  const float u = score_exp(-fabs(x));
  const float s = u / (2.0f + u);
  const float z = s * s;
  float p = 1.0f / 15.0f;
  p = fma(p, z, 1.0f / 13.0f);
  p = fma(p, z, 1.0f / 11.0f);
  p = fma(p, z, 1.0f / 9.0f);
  p = fma(p, z, 1.0f / 7.0f);
  p = fma(p, z, 1.0f / 5.0f);
  p = fma(p, z, 1.0f / 3.0f);
  p = fma(p, z, 1.0f);
  const float log1p = (s + s) * p;
  return sqrt((x > 0.0f ? x : 0.0f) + log1p);
}

// The canonical sum: lane l has chain l; folded in halves (16, 8, 4, 2, 1). Right in lane 0.
static inline float fold_chains(float chain) {
  for (ushort half_way = 16; half_way > 0; half_way /= 2) chain += simd_shuffle_xor(chain, half_way);
  return chain;
}

// NaN counts as minus infinity, plus infinity as the largest number.
static inline float ordered(float x) {
  return isnan(x) ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
}
// Larger numbers are larger integers, and -0 is +0. 0 is below all of them.
static inline uint order_of(float x) {
  const uint bits = as_type<uint>(x == 0.0f ? 0.0f : x);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
static inline float from_order(uint order) {
  return as_type<float>((order >> 31) != 0 ? order & 0x7FFFFFFFu : ~order);
}
enum : uint { kLowestOrder = 0x007FFFFFu };  // minus infinity

// A positive number as m * 2^e: exponentials may be smaller than any float, and be divided by something small later.
struct Scaled {
  float m;
  int e;
};
// exp(x) for x <= 0.
static inline Scaled scaled_exp(float x) {
  if (!(x >= -1000.0f)) return {0.0f, 0};
  const float n = rint(x * 1.44269504f);
  const float r = fma(n, -1.42860677e-6f, fma(n, -0.693145752f, x));
  return {row_exp(r), int(n)};
}
