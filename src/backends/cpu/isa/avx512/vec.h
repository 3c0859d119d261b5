// Sixteen lanes of AVX-512 (F, BW, VL, DQ, VNNI): the vector type that the kernels of src/backends/cpu/kernels are
// instantiated with. isa/generic/vec.h says what each function means.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace conclave {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  using M = __mmask16;
  static constexpr int kMaxRows = 8;  // rows of a product tile whose sums stay in registers
  static constexpr bool kNarrow = false;
  static constexpr int kBias = 128;  // added to signed levels: vpdpbusd multiplies unsigned by signed bytes

  typedef int Word __attribute__((aligned(1), may_alias));  // four bytes anywhere

#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

  CONCLAVE_INLINE F zero() {
    return _mm512_setzero_ps();
  }
  CONCLAVE_INLINE F set1(float x) {
    return _mm512_set1_ps(x);
  }
  CONCLAVE_INLINE F load(const float* p) {
    return _mm512_loadu_ps(p);
  }
  CONCLAVE_INLINE void store(float* p, F x) {
    _mm512_storeu_ps(p, x);
  }
  CONCLAVE_INLINE void stream(float* p, F x) {
    _mm512_stream_ps(p, x);
  }
  CONCLAVE_INLINE void streamed() {
    _mm_sfence();
  }
  CONCLAVE_INLINE F load_n(const float* p, std::int64_t n) {
    return _mm512_maskz_loadu_ps(static_cast<M>((1U << n) - 1U), p);
  }
  CONCLAVE_INLINE void store_n(float* p, F x, std::int64_t n) {
    _mm512_mask_storeu_ps(p, static_cast<M>((1U << n) - 1U), x);
  }
  CONCLAVE_INLINE F load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  CONCLAVE_INLINE F load_bf16(const std::uint16_t* p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
  }
  CONCLAVE_INLINE void store_f16(std::uint16_t* p, F x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  CONCLAVE_INLINE void store_bf16(std::uint16_t* p, F x) {
    const I bits = _mm512_castps_si512(x);
    const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const I rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
    const I quiet = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    const I half = _mm512_mask_mov_epi32(rounded, is_nan(x), quiet);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(half));
  }

  CONCLAVE_INLINE F add(F a, F b) {
    return _mm512_add_ps(a, b);
  }
  CONCLAVE_INLINE F sub(F a, F b) {
    return _mm512_sub_ps(a, b);
  }
  CONCLAVE_INLINE F mul(F a, F b) {
    return _mm512_mul_ps(a, b);
  }
  CONCLAVE_INLINE F div(F a, F b) {
    return _mm512_div_ps(a, b);
  }
  CONCLAVE_INLINE F fma(F a, F b, F c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  CONCLAVE_INLINE F max(F a, F b) {
    return _mm512_max_ps(a, b);
  }
  CONCLAVE_INLINE F min(F a, F b) {
    return _mm512_min_ps(a, b);
  }
  CONCLAVE_INLINE F sqrt(F x) {
    return _mm512_sqrt_ps(x);
  }
  CONCLAVE_INLINE F abs(F x) {
    return _mm512_abs_ps(x);
  }
  CONCLAVE_INLINE M less(F a, F b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
  }
  CONCLAVE_INLINE M is_nan(F x) {
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  }
  CONCLAVE_INLINE F select(M m, F yes, F no) {
    return _mm512_mask_mov_ps(no, m, yes);
  }
  CONCLAVE_INLINE bool any(M m) {
    return m != 0;
  }
  CONCLAVE_INLINE F to_f(I x) {
    return _mm512_cvtepi32_ps(x);
  }
  CONCLAVE_INLINE I to_i(F x) {
    return _mm512_cvtps_epi32(x);
  }
  CONCLAVE_INLINE F as_f(I x) {
    return _mm512_castsi512_ps(x);
  }
  CONCLAVE_INLINE I as_i(F x) {
    return _mm512_castps_si512(x);
  }
  CONCLAVE_INLINE float sum(F x) {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  CONCLAVE_INLINE float largest(F x) {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  CONCLAVE_INLINE I izero() {
    return _mm512_setzero_si512();
  }
  CONCLAVE_INLINE I iset1(std::int32_t x) {
    return _mm512_set1_epi32(x);
  }
  CONCLAVE_INLINE I iload(const void* p) {
    return _mm512_loadu_si512(p);
  }
  CONCLAVE_INLINE void istore(void* p, I x) {
    _mm512_storeu_si512(p, x);
  }
  CONCLAVE_INLINE I iadd(I a, I b) {
    return _mm512_add_epi32(a, b);
  }
  CONCLAVE_INLINE I isub(I a, I b) {
    return _mm512_sub_epi32(a, b);
  }
  CONCLAVE_INLINE I imul(I a, I b) {
    return _mm512_mullo_epi32(a, b);
  }
  CONCLAVE_INLINE I iand(I a, I b) {
    return _mm512_and_si512(a, b);
  }
  CONCLAVE_INLINE I ior(I a, I b) {
    return _mm512_or_si512(a, b);
  }
  CONCLAVE_INLINE I ixor(I a, I b) {
    return _mm512_xor_si512(a, b);
  }
  template <int n>
  CONCLAVE_INLINE I shl(I x) {
    return _mm512_slli_epi32(x, n);
  }
  template <int n>
  CONCLAVE_INLINE I shr(I x) {
    return _mm512_srli_epi32(x, n);
  }
  template <int n>
  CONCLAVE_INLINE I sar(I x) {
    return _mm512_srai_epi32(x, n);
  }
  CONCLAVE_INLINE F half_low(I x) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
  }
  CONCLAVE_INLINE I lookup16(I index, const std::int8_t* table) {
    const I levels = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return _mm512_shuffle_epi8(levels, index);
  }
  CONCLAVE_INLINE I bcast(const void* p) {
    return _mm512_set1_epi32(*static_cast<const Word*>(p));
  }
  CONCLAVE_INLINE I dot(I acc, I levels, I x) {
    return _mm512_dpbusd_epi32(acc, levels, x);
  }
  CONCLAVE_INLINE I dot_signed(I acc, I levels, I x) {
    return _mm512_dpbusd_epi32(acc, levels, x);
  }
  CONCLAVE_INLINE I dot16(I acc, I pairs, I x) {
    return _mm512_dpwssd_epi32(acc, pairs, x);
  }
  CONCLAVE_INLINE void narrow(std::int8_t* p, I x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
  }

  CONCLAVE_INLINE I load_columns(const std::byte* const* column, std::int64_t offset) {
    const auto word = [&](int n) { return *reinterpret_cast<const Word*>(column[n] + offset); };
    return _mm512_setr_epi32(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7), word(8), word(9),
                             word(10), word(11), word(12), word(13), word(14), word(15));
  }
  CONCLAVE_INLINE void load_columns4(const std::byte* const* column, std::int64_t offset, I* out) {
    // Lane L of rows[i] is column 4L + i, so that transposing 4x4 inside the lanes leaves the columns in order.
    const auto quad = [&](int i) __attribute__((always_inline)) {
      const auto at = [&](int n) __attribute__((always_inline)) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(column[n] + offset));
      };
      I x = _mm512_castsi128_si512(at(i));
      x = _mm512_inserti32x4(x, at(4 + i), 1);
      x = _mm512_inserti32x4(x, at(8 + i), 2);
      return _mm512_inserti32x4(x, at(12 + i), 3);
    };
    const I r0 = quad(0);
    const I r1 = quad(1);
    const I r2 = quad(2);
    const I r3 = quad(3);
    const I a = _mm512_unpacklo_epi32(r0, r1);
    const I b = _mm512_unpacklo_epi32(r2, r3);
    const I c = _mm512_unpackhi_epi32(r0, r1);
    const I d = _mm512_unpackhi_epi32(r2, r3);
    out[0] = _mm512_unpacklo_epi64(a, b);
    out[1] = _mm512_unpackhi_epi64(a, b);
    out[2] = _mm512_unpacklo_epi64(c, d);
    out[3] = _mm512_unpackhi_epi64(c, d);
  }
  CONCLAVE_INLINE void prefetch(const void* p) {
    _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
  }

#undef CONCLAVE_INLINE
};

}  // namespace conclave
