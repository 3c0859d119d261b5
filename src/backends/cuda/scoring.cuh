// ops/scoring.h restated for kernels, step for step: the bits that decide which expert is chosen. And the order in
// which they decide: floats as integers that compare the same way.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace conclave::cuda {

// exp(x) for x <= 0; 0 below ln(2^-126) and for NaN.
__device__ __forceinline__ float score_exp(float x) {
  if (!(x >= -87.33654F)) return 0.0F;
  const float n = rintf(x * 1.44269504F);
  float r = fmaf(n, -0.693145752F, x);
  r = fmaf(n, -1.42860677e-6F, r);
  float p = 1.0F / 5040.0F;
  p = fmaf(p, r, 1.0F / 720.0F);
  p = fmaf(p, r, 1.0F / 120.0F);
  p = fmaf(p, r, 1.0F / 24.0F);
  p = fmaf(p, r, 1.0F / 6.0F);
  p = fmaf(p, r, 0.5F);
  p = fmaf(p, r, 1.0F);
  p = fmaf(p, r, 1.0F);
  const auto exponent = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127);
  return __fmul_rn(p, __uint_as_float(exponent << 23));
}

__device__ __forceinline__ float score_sigmoid(float x) {
  const float e = score_exp(-fabsf(x));
  return __fdiv_rn(x >= 0.0F ? 1.0F : e, __fadd_rn(1.0F, e));
}

__device__ __forceinline__ float score_sqrt_softplus(float x) {
  const float u = score_exp(-fabsf(x));
  const float s = __fdiv_rn(u, __fadd_rn(2.0F, u));
  const float z = __fmul_rn(s, s);
  float p = 1.0F / 15.0F;
  p = fmaf(p, z, 1.0F / 13.0F);
  p = fmaf(p, z, 1.0F / 11.0F);
  p = fmaf(p, z, 1.0F / 9.0F);
  p = fmaf(p, z, 1.0F / 7.0F);
  p = fmaf(p, z, 1.0F / 5.0F);
  p = fmaf(p, z, 1.0F / 3.0F);
  p = fmaf(p, z, 1.0F);
  const float log1p = __fmul_rn(__fadd_rn(s, s), p);
  return __fsqrt_rn(__fadd_rn(x > 0.0F ? x : 0.0F, log1p));
}

// The canonical sum's chains, one per lane, folded in halves: every lane gets the sum. Lane i adds lane i + half, and
// an addition has the same bits either way round.
__device__ __forceinline__ float fold_chains(float chain) {
  for (int half = 16; half > 0; half /= 2) chain = __fadd_rn(chain, __shfl_xor_sync(0xFFFFFFFFU, chain, half));
  return chain;
}

inline constexpr std::uint32_t kLowestOrder = 0x007FFFFFU;  // order_of(minus infinity); 0 is below it: not there

__device__ __forceinline__ float lowest() {
  return __uint_as_float(0xFF800000U);
}

// NaN to minus infinity, plus infinity to the largest finite float: afterwards the order is total.
__device__ __forceinline__ float ordered(float x) {
  if (isnan(x)) return lowest();
  return fminf(x, __uint_as_float(0x7F7FFFFFU));
}

// A float that is no NaN as an integer of the same order; -0 is +0.
__device__ __forceinline__ std::uint32_t order_of(float x) {
  std::uint32_t bits = __float_as_uint(x);
  if (bits == 0x80000000U) bits = 0;
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ __forceinline__ float from_order(std::uint32_t order) {
  return __uint_as_float((order & 0x80000000U) != 0 ? order & 0x7FFFFFFFU : ~order);
}

}  // namespace conclave::cuda
