#include "bench/kernels/fma_peak.h"

#include "base/cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace conclave::bench {
namespace {

// Latency 4 times two a cycle is 8 in flight; more chains cost nothing. The multiplier keeps the values where they are.
constexpr int kChains = 12;

#if defined(__x86_64__)

__attribute__((target("avx512f"))) double avx512_rounds(std::int64_t rounds, float* sink) {
  __m512 chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = _mm512_set1_ps(static_cast<float>(c));
  const __m512 a = _mm512_set1_ps(0.5F);
  const __m512 b = _mm512_set1_ps(sink[0]);
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (int c = 0; c < kChains; ++c) chains[c] = _mm512_fmadd_ps(chains[c], a, b);
  }
  float lanes[16];
  for (int c = 1; c < kChains; ++c) chains[0] = _mm512_add_ps(chains[0], chains[c]);
  _mm512_storeu_ps(lanes, chains[0]);
  sink[0] = lanes[0];
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2,fma"))) double avx2_rounds(std::int64_t rounds, float* sink) {
  __m256 chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = _mm256_set1_ps(static_cast<float>(c));
  const __m256 a = _mm256_set1_ps(0.5F);
  const __m256 b = _mm256_set1_ps(sink[0]);
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (int c = 0; c < kChains; ++c) chains[c] = _mm256_fmadd_ps(chains[c], a, b);
  }
  float lanes[8];
  for (int c = 1; c < kChains; ++c) chains[0] = _mm256_add_ps(chains[0], chains[c]);
  _mm256_storeu_ps(lanes, chains[0]);
  sink[0] = lanes[0];
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

double best_rounds(std::int64_t rounds, float* sink) {
  const CpuFeatures features = detect_cpu_features();
  if (features.avx512) return avx512_rounds(rounds, sink);
  if (features.avx2) return avx2_rounds(rounds, sink);
  return 0;
}

#elif defined(__aarch64__)

double best_rounds(std::int64_t rounds, float* sink) {
  float32x4_t chains[kChains];
  for (int c = 0; c < kChains; ++c) chains[c] = vdupq_n_f32(static_cast<float>(c));
  const float32x4_t a = vdupq_n_f32(0.5F);
  const float32x4_t b = vdupq_n_f32(sink[0]);
  for (std::int64_t r = 0; r < rounds; ++r) {
    for (int c = 0; c < kChains; ++c) chains[c] = vfmaq_f32(b, chains[c], a);
  }
  for (int c = 1; c < kChains; ++c) chains[0] = vaddq_f32(chains[0], chains[c]);
  sink[0] = vgetq_lane_f32(chains[0], 0);
  return 2.0 * 4 * kChains * static_cast<double>(rounds);
}

#else

double best_rounds(std::int64_t, float*) {
  return 0;
}

#endif

}  // namespace

double fma_peak(std::int64_t rounds, float* sink) {
  return best_rounds(rounds, sink);
}

}  // namespace conclave::bench
