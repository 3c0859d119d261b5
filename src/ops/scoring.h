// The transcendental functions that decide which expert is chosen. Written with explicit fused multiply-adds and IEEE
// division alone, so that every backend that repeats these steps gets these bits: equal logits, equal experts.
//
// Backends restate these functions in their own language, step for step; tests compare the bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

namespace conclave {

// exp(x) for x <= 0, within 2 ulp; 0 below ln(2^-126), so that no subnormal is ever made. NaN gives 0.
inline float score_exp(float x) {
  if (!(x >= -87.33654F)) return 0.0F;
  const float n = std::nearbyintf(x * 1.44269504F);  // round to nearest even
  float r = std::fmaf(n, -0.693145752F, x);          // ln 2, upper bits: n * this is exact
  r = std::fmaf(n, -1.42860677e-6F, r);              // ln 2, the rest
  float p = 1.0F / 5040.0F;
  p = std::fmaf(p, r, 1.0F / 720.0F);
  p = std::fmaf(p, r, 1.0F / 120.0F);
  p = std::fmaf(p, r, 1.0F / 24.0F);
  p = std::fmaf(p, r, 1.0F / 6.0F);
  p = std::fmaf(p, r, 0.5F);
  p = std::fmaf(p, r, 1.0F);
  p = std::fmaf(p, r, 1.0F);
  const auto exponent = static_cast<std::int32_t>(n) + 127;  // 1 .. 127
  return p * std::bit_cast<float>(static_cast<std::uint32_t>(exponent) << 23);
}

// 1 / (1 + exp(-x)), through exp of a non-positive number.
inline float score_sigmoid(float x) {
  const float e = score_exp(-std::fabs(x));
  return (x >= 0.0F ? 1.0F : e) / (1.0F + e);
}

// sqrt(log(1 + exp(x))) = sqrt(max(x, 0) + log1p(exp(-|x|))); log1p(u) = 2 atanh(u / (2 + u)) by its series.
inline float score_sqrt_softplus(float x) {
  const float u = score_exp(-std::fabs(x));
  const float s = u / (2.0F + u);  // 0 .. 1/3
  const float z = s * s;
  float p = 1.0F / 15.0F;
  p = std::fmaf(p, z, 1.0F / 13.0F);
  p = std::fmaf(p, z, 1.0F / 11.0F);
  p = std::fmaf(p, z, 1.0F / 9.0F);
  p = std::fmaf(p, z, 1.0F / 7.0F);
  p = std::fmaf(p, z, 1.0F / 5.0F);
  p = std::fmaf(p, z, 1.0F / 3.0F);
  p = std::fmaf(p, z, 1.0F);
  const float log1p = (s + s) * p;
  return std::sqrt((x > 0.0F ? x : 0.0F) + log1p);
}

// The canonical sum: 32 chains over i mod 32, ascending, then the chains folded in halves (16, 8, 4, 2, 1).
inline float fold_chains(std::span<float, 32> chains) {
  for (std::size_t half = 16; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) chains[i] += chains[i + half];
  }
  return chains[0];
}

}  // namespace conclave
