// Sixteen lanes as two halves of AVX2 (with FMA and F16C): the vector type that the kernels of src/backends/cpu/kernels
// are instantiated with. isa/generic/vec.h says what each function means.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace conclave {

#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

struct Avx2 {
  struct F {
    __m256 lo, hi;  // lanes 0 to 7, 8 to 15
  };
  struct I {
    __m256i lo, hi;
  };
  struct M {
    __m256 lo, hi;  // all ones: yes
  };
  static constexpr int kMaxRows = 3;  // rows of a product tile whose sums stay in registers
  static constexpr int kBias = 0;     // added to signed levels before dot_signed()
  static constexpr bool kNarrow = true;
  using N = I;

  CONCLAVE_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  CONCLAVE_INLINE F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  CONCLAVE_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  CONCLAVE_INLINE void store(float* p, F x) {
    _mm256_storeu_ps(p, x.lo);
    _mm256_storeu_ps(p + 8, x.hi);
  }
  CONCLAVE_INLINE F load_n(const float* p, std::int64_t n) {
    const I wanted = first(n);
    return {_mm256_maskload_ps(p, wanted.lo), _mm256_maskload_ps(p + 8, wanted.hi)};
  }
  CONCLAVE_INLINE void stream(float* p, F x) {
    _mm256_stream_ps(p, x.lo);
    _mm256_stream_ps(p + 8, x.hi);
  }
  CONCLAVE_INLINE void streamed() { _mm_sfence(); }
  CONCLAVE_INLINE void store_n(float* p, F x, std::int64_t n) {
    const I wanted = first(n);
    _mm256_maskstore_ps(p, wanted.lo, x.lo);
    _mm256_maskstore_ps(p + 8, wanted.hi, x.hi);
  }
  CONCLAVE_INLINE F load_f16(const std::uint16_t* p) {
    return {_mm256_cvtph_ps(load128(p)), _mm256_cvtph_ps(load128(p + 8))};
  }
  CONCLAVE_INLINE F load_bf16(const std::uint16_t* p) {
    return as_f(shl<16>({_mm256_cvtepu16_epi32(load128(p)), _mm256_cvtepu16_epi32(load128(p + 8))}));
  }
  CONCLAVE_INLINE void store_f16(std::uint16_t* p, F x) {
    store128(p, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
    store128(p + 8, _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
  }
  CONCLAVE_INLINE void store_bf16(std::uint16_t* p, F x) {
    const I bits = as_i(x);
    const I upper = shr<16>(bits);
    const I rounded = shr<16>(iadd(bits, iadd(iand(upper, iset1(1)), iset1(0x7FFF))));
    const I quiet = ior(upper, iset1(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), low_words(as_i(select(is_nan(x), as_f(quiet), as_f(rounded)))));
  }

  CONCLAVE_INLINE F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  CONCLAVE_INLINE F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  CONCLAVE_INLINE F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  CONCLAVE_INLINE F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  CONCLAVE_INLINE F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  CONCLAVE_INLINE F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  CONCLAVE_INLINE F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
  CONCLAVE_INLINE F sqrt(F x) { return {_mm256_sqrt_ps(x.lo), _mm256_sqrt_ps(x.hi)}; }
  CONCLAVE_INLINE F abs(F x) { return as_f(iand(as_i(x), iset1(0x7FFFFFFF))); }
  CONCLAVE_INLINE M less(F a, F b) {
    return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
  }
  CONCLAVE_INLINE M is_nan(F x) {
    return {_mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q), _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q)};
  }
  CONCLAVE_INLINE F select(M m, F yes, F no) {
    return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
  }
  CONCLAVE_INLINE bool any(M m) { return _mm256_movemask_ps(_mm256_or_ps(m.lo, m.hi)) != 0; }
  CONCLAVE_INLINE F to_f(I x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }
  CONCLAVE_INLINE I to_i(F x) { return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)}; }
  CONCLAVE_INLINE F as_f(I x) { return {_mm256_castsi256_ps(x.lo), _mm256_castsi256_ps(x.hi)}; }
  CONCLAVE_INLINE I as_i(F x) { return {_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)}; }
  CONCLAVE_INLINE float sum(F x) {
    const __m256 a = _mm256_add_ps(x.lo, x.hi);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  CONCLAVE_INLINE float largest(F x) {
    const __m256 a = _mm256_max_ps(x.lo, x.hi);
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  CONCLAVE_INLINE I izero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  CONCLAVE_INLINE I iset1(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
  CONCLAVE_INLINE I iload(const void* p) {
    const auto* half = static_cast<const __m256i_u*>(p);
    return {_mm256_loadu_si256(half), _mm256_loadu_si256(half + 1)};
  }
  CONCLAVE_INLINE void istore(void* p, I x) {
    auto* half = static_cast<__m256i_u*>(p);
    _mm256_storeu_si256(half, x.lo);
    _mm256_storeu_si256(half + 1, x.hi);
  }
  CONCLAVE_INLINE I iadd(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
  CONCLAVE_INLINE I isub(I a, I b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
  CONCLAVE_INLINE I imul(I a, I b) { return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)}; }
  CONCLAVE_INLINE I iand(I a, I b) { return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)}; }
  CONCLAVE_INLINE I ior(I a, I b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
  CONCLAVE_INLINE I ixor(I a, I b) { return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)}; }
  template <int n>
  CONCLAVE_INLINE I shl(I x) {
    return {_mm256_slli_epi32(x.lo, n), _mm256_slli_epi32(x.hi, n)};
  }
  template <int n>
  CONCLAVE_INLINE I shr(I x) {
    return {_mm256_srli_epi32(x.lo, n), _mm256_srli_epi32(x.hi, n)};
  }
  template <int n>
  CONCLAVE_INLINE I sar(I x) {
    return {_mm256_srai_epi32(x.lo, n), _mm256_srai_epi32(x.hi, n)};
  }
  CONCLAVE_INLINE F half_low(I x) {
    const __m256i halves = low_words(iand(x, iset1(0xFFFF)));
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
  }
  CONCLAVE_INLINE I lookup16(I index, const std::int8_t* table) {
    const __m256i levels = _mm256_broadcastsi128_si256(load128(table));
    return {_mm256_shuffle_epi8(levels, index.lo), _mm256_shuffle_epi8(levels, index.hi)};
  }
  CONCLAVE_INLINE I bcast(const void* p) { return iset1(word(p)); }
  // Two products of at most 127 * 127 are summed in 16 bits, where vpmaddubsw would saturate at 32767.
  CONCLAVE_INLINE I dot(I acc, I levels, I x) {
    const __m256i ones = _mm256_set1_epi16(1);
    return iadd(acc, {_mm256_madd_epi16(_mm256_maddubs_epi16(levels.lo, x.lo), ones),
                      _mm256_madd_epi16(_mm256_maddubs_epi16(levels.hi, x.hi), ones)});
  }
  // |level| times x with the level's sign: |-128| is 128 as an unsigned byte, and 2 * 128 * 127 still fits.
  CONCLAVE_INLINE I dot_signed(I acc, I levels, I x) {
    return dot(acc, {_mm256_abs_epi8(levels.lo), _mm256_abs_epi8(levels.hi)},
               {_mm256_sign_epi8(x.lo, levels.lo), _mm256_sign_epi8(x.hi, levels.hi)});
  }
  CONCLAVE_INLINE N narrow_zero() { return izero(); }
  CONCLAVE_INLINE N narrow_dot(N acc, I levels, I x) {
    return {_mm256_add_epi16(acc.lo, _mm256_maddubs_epi16(levels.lo, x.lo)),
            _mm256_add_epi16(acc.hi, _mm256_maddubs_epi16(levels.hi, x.hi))};
  }
  CONCLAVE_INLINE I widen(N acc) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_madd_epi16(acc.lo, ones), _mm256_madd_epi16(acc.hi, ones)};
  }
  CONCLAVE_INLINE I dot16(I acc, I pairs, I x) {
    return iadd(acc, {_mm256_madd_epi16(pairs.lo, x.lo), _mm256_madd_epi16(pairs.hi, x.hi)});
  }
  CONCLAVE_INLINE void narrow(std::int8_t* p, I x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.lo, x.hi), kInOrder);
    store128(p, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }

  CONCLAVE_INLINE I load_columns(const std::byte* const* column, std::int64_t offset) {
    return {eight_words(column, offset), eight_words(column + 8, offset)};
  }
  CONCLAVE_INLINE void load_columns4(const std::byte* const* column, std::int64_t offset, I* out) {
    transpose8(column, offset, out[0].lo, out[1].lo, out[2].lo, out[3].lo);
    transpose8(column + 8, offset, out[0].hi, out[1].hi, out[2].hi, out[3].hi);
  }
  CONCLAVE_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

 private:
  // vpackssdw and vpackusdw of (lo, hi) leave quarters 0 2 1 3.
  static constexpr int kInOrder = 0b11'01'10'00;

  CONCLAVE_INLINE I first(std::int64_t n) {
    const __m256i count = _mm256_set1_epi32(static_cast<int>(n));
    return {_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
  }
  CONCLAVE_INLINE __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i_u*>(p)); }
  CONCLAVE_INLINE void store128(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i_u*>(p), x); }
  CONCLAVE_INLINE std::int32_t word(const void* p) {
    std::int32_t x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  // Lanes of 0 to 65535 as 16 words.
  CONCLAVE_INLINE __m256i low_words(I x) { return _mm256_permute4x64_epi64(_mm256_packus_epi32(x.lo, x.hi), kInOrder); }
  CONCLAVE_INLINE __m256i eight_words(const std::byte* const* column, std::int64_t offset) {
    return _mm256_setr_epi32(word(column[0] + offset), word(column[1] + offset), word(column[2] + offset),
                             word(column[3] + offset), word(column[4] + offset), word(column[5] + offset),
                             word(column[6] + offset), word(column[7] + offset));
  }
  // Columns i and i + 4 side by side, so that transposing 4x4 inside the 128-bit lanes leaves the columns in order.
  CONCLAVE_INLINE __m256i pair(const std::byte* const* column, std::int64_t offset, int i) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load128(column[i] + offset)), load128(column[i + 4] + offset),
                                   1);
  }
  CONCLAVE_INLINE void transpose8(const std::byte* const* column, std::int64_t offset, __m256i& out0, __m256i& out1,
                                  __m256i& out2, __m256i& out3) {
    const __m256i r0 = pair(column, offset, 0);
    const __m256i r1 = pair(column, offset, 1);
    const __m256i r2 = pair(column, offset, 2);
    const __m256i r3 = pair(column, offset, 3);
    const __m256i a = _mm256_unpacklo_epi32(r0, r1);
    const __m256i b = _mm256_unpacklo_epi32(r2, r3);
    const __m256i c = _mm256_unpackhi_epi32(r0, r1);
    const __m256i d = _mm256_unpackhi_epi32(r2, r3);
    out0 = _mm256_unpacklo_epi64(a, b);
    out1 = _mm256_unpackhi_epi64(a, b);
    out2 = _mm256_unpacklo_epi64(c, d);
    out3 = _mm256_unpackhi_epi64(c, d);
  }
};

#undef CONCLAVE_INLINE

}  // namespace conclave
