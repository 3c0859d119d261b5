// Sixteen columns of q4_k, q5_k or q6_k, one chunk of 256 weights each, unpacked for tile products: levels times their
// scales, in two digits, with four of k and then the column innermost.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/isa/avx512/vec.h"

namespace conclave {

struct alignas(64) AmxWeights {
  std::uint8_t digit[4][2][16][64];  // [64 of k][digit][k / 4][column * 4 + k % 4]
  // bf16, [group][column][2]: 128 + minimum, for both digits of a row's sum; then ones, for what the 128 is too much.
  std::uint16_t fold[16][32];
  __m512i scale[4];  // [groups 4 i ..]: a lane has a column's four scales
  __m512i high[8];   // q5_k: the fifth bits, [k / 4]

  void complete_fold() {
    for (int g = 8; g < 16; ++g) Avx512::istore(fold[g], _mm512_set1_epi16(g == 8 ? 0x3F80 : 0));
  }
};

// What multiplies the sums of a chunk.
struct alignas(64) AmxFactors {
  float d[16];
  float m[16];
};

// What the formats share. A level of up to five bits times three bits of its scale is a byte: one 16-bit product makes
// two of them; the scale's upper three bits make the second digit, which counts eight times.
struct AmxUnpack {
  using V = Avx512;
  using I = __m512i;
  using Columns = const std::byte* const*;
#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

  CONCLAVE_INLINE I mask(I x, int bits) {
    return _mm512_and_si512(x, _mm512_set1_epi32(bits));
  }
  // An index for vpshufb: byte b of each lane in the bytes 0 and 2 of the lane, or in 1 and 3; the others are 0.
  CONCLAVE_INLINE I spread(int b, int odd = 0) {
    const auto lane = [&](int n) {
      const unsigned both = static_cast<unsigned>(4 * n + b) * 0x00010001U;
      return static_cast<int>(odd != 0 ? both << 8 | 0x00800080U : both | 0x80008000U);
    };
    return _mm512_broadcast_i32x4(_mm_setr_epi32(lane(0), lane(1), lane(2), lane(3)));
  }
  // 32 bytes of each column as eight vectors of one word from each.
  CONCLAVE_INLINE void load_words8(Columns columns, std::int64_t at, I* out) {
    I first[4];
    I second[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto load = [&](int n) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(columns[n] + at)); };
      const I a = _mm512_inserti64x4(_mm512_castsi256_si512(load(i)), load(4 + i), 1);
      const I b = _mm512_inserti64x4(_mm512_castsi256_si512(load(8 + i)), load(12 + i), 1);
      first[i] = _mm512_shuffle_i32x4(a, b, 0x88);
      second[i] = _mm512_shuffle_i32x4(a, b, 0xDD);
    }
    transpose4(first, out);
    transpose4(second, out + 4);
  }
  // Four by four words in each lane of 128 bits.
  CONCLAVE_INLINE void transpose4(const I* r, I* out) {
    const I a = _mm512_unpacklo_epi32(r[0], r[1]);
    const I b = _mm512_unpacklo_epi32(r[2], r[3]);
    const I c = _mm512_unpackhi_epi32(r[0], r[1]);
    const I d = _mm512_unpackhi_epi32(r[2], r[3]);
    out[0] = _mm512_unpacklo_epi64(a, b);
    out[1] = _mm512_unpackhi_epi64(a, b);
    out[2] = _mm512_unpacklo_epi64(c, d);
    out[3] = _mm512_unpackhi_epi64(c, d);
  }

  // Two groups of a format, which has them as pair<p>.
  template <class Format>
  CONCLAVE_INLINE void pair_at(Columns columns, int step, AmxWeights& w) {
    switch (step) {
      case 0:
        return Format::template pair<0>(columns, w);
      case 1:
        return Format::template pair<1>(columns, w);
      case 2:
        return Format::template pair<2>(columns, w);
      default:
        return Format::template pair<3>(columns, w);
    }
  }
  // q4_k and q5_k: d, dmin and the 12 bytes of k_scales.h.
  CONCLAVE_INLINE void k_header(Columns columns, AmxWeights& w, AmxFactors& f) {
    I head[4];
    V::load_columns4(columns, 0, head);
    V::store(f.d, V::half_low(head[0]));
    V::store(f.m, V::half_low(V::shr<16>(head[0])));
    w.scale[0] = mask(head[1], 0x3F3F3F3F);
    w.scale[1] = V::ior(mask(head[3], 0x0F0F0F0F), mask(V::shr<2>(head[1]), 0x30303030));
    const I min[2] = {mask(head[2], 0x3F3F3F3F),
                      V::ior(mask(V::shr<4>(head[3]), 0x0F0F0F0F), mask(V::shr<2>(head[2]), 0x30303030))};
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {  // 0x4300 + m is the bf16 of 128 + m
      V::istore(w.fold[g],
                _mm512_mask_shuffle_epi8(_mm512_set1_epi8(0x43), 0x5555555555555555ULL, min[g / 4], spread(g % 4)));
    }
  }
  // 16-bit scales of group g in each column.
  CONCLAVE_INLINE I k_scale(const AmxWeights& w, int g) {
    return _mm512_shuffle_epi8(w.scale[g / 4], spread(g % 4));
  }
#undef CONCLAVE_INLINE
};

#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

struct AmxQ4K : AmxUnpack {
  static constexpr std::int64_t kBytes = 144;
  static constexpr bool kHasMinimum = true;
  static constexpr bool kHighIsSigned = false;
  static constexpr int kShift = 3;

  // Groups 2p and 2p + 1: the low and high nibbles of 32 bytes. High ones are not shifted down: their scales are 12
  // bits up, and the upper half of the 16-bit product is taken.
  template <int p>
  CONCLAVE_INLINE void pair(Columns columns, AmxWeights& w) {
    const I even = k_scale(w, 2 * p);
    const I odd = k_scale(w, 2 * p + 1);
    const I even_low = _mm512_and_si512(even, _mm512_set1_epi16(7));
    const I even_high = _mm512_srli_epi16(even, 3);
    const I odd_low = _mm512_and_si512(_mm512_slli_epi16(odd, 12), _mm512_set1_epi16(0x7000));
    const I odd_high = _mm512_and_si512(_mm512_slli_epi16(odd, 9), _mm512_set1_epi16(0x7000));
    I packed[8];
    load_words8(columns, 16 + 32 * p, packed);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const I low = mask(packed[j], 0x0F0F0F0F);
      const I high = mask(packed[j], static_cast<int>(0xF0F0F0F0U));
      V::istore(w.digit[p][0][j], _mm512_mullo_epi16(low, even_low));
      V::istore(w.digit[p][1][j], _mm512_mullo_epi16(low, even_high));
      V::istore(w.digit[p][0][8 + j], _mm512_mulhi_epu16(high, odd_low));
      V::istore(w.digit[p][1][8 + j], _mm512_mulhi_epu16(high, odd_high));
    }
  }
  static void unpack(Columns columns, int step, AmxWeights& w, AmxFactors& f) {
    if (step == 0) k_header(columns, w, f);
    pair_at<AmxQ4K>(columns, step, w);
  }
};

struct AmxQ5K : AmxUnpack {
  static constexpr std::int64_t kBytes = 176;
  static constexpr bool kHasMinimum = true;
  static constexpr bool kHighIsSigned = false;
  static constexpr int kShift = 3;

  CONCLAVE_INLINE void put(AmxWeights& w, int step, int at, I level, I scale) {
    V::istore(w.digit[step][0][at], _mm512_mullo_epi16(level, _mm512_and_si512(scale, _mm512_set1_epi16(7))));
    V::istore(w.digit[step][1][at], _mm512_mullo_epi16(level, _mm512_srli_epi16(scale, 3)));
  }
  template <int p>
  CONCLAVE_INLINE void pair(Columns columns, AmxWeights& w) {
    const I even = k_scale(w, 2 * p);
    const I odd = k_scale(w, 2 * p + 1);
    I packed[8];
    load_words8(columns, 48 + 32 * p, packed);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const I low = V::shl<4>(mask(V::shr<2 * p>(w.high[j]), 0x01010101));
      const I high = V::shl<4>(mask(V::shr<2 * p + 1>(w.high[j]), 0x01010101));
      put(w, p, j, V::ior(mask(packed[j], 0x0F0F0F0F), low), even);
      put(w, p, 8 + j, V::ior(mask(V::shr<4>(packed[j]), 0x0F0F0F0F), high), odd);
    }
  }
  static void unpack(Columns columns, int step, AmxWeights& w, AmxFactors& f) {
    if (step == 0) {
      k_header(columns, w, f);
      load_words8(columns, 16, w.high);
    }
    pair_at<AmxQ5K>(columns, step, w);
  }
};

// Level less 32, times a signed scale: 13 bits and a sign, whose digits are an unsigned and a signed byte.
struct AmxQ6K : AmxUnpack {
  static constexpr std::int64_t kBytes = 210;
  static constexpr bool kHasMinimum = false;
  static constexpr bool kHighIsSigned = true;
  static constexpr int kShift = 8;

  CONCLAVE_INLINE void put(AmxWeights& w, int step, int at, I level) {
    const int g = 4 * step + at / 4;
    const I scale = _mm512_srai_epi16(_mm512_shuffle_epi8(w.scale[g / 4], spread(g % 4, 1)), 8);
    const I offset = _mm512_set1_epi16(32);
    const I even = _mm512_mullo_epi16(_mm512_sub_epi16(mask(level, 0x00FF00FF), offset), scale);
    const I odd = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(level, 8), offset), scale);
    V::istore(w.digit[step][0][at], _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAULL, even, _mm512_slli_epi16(odd, 8)));
    V::istore(w.digit[step][1][at], _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAULL, _mm512_srli_epi16(even, 8), odd));
  }
  // Low nibbles are one step, high ones the next: both are made when the tile unit is done with both.
  template <int half>
  CONCLAVE_INLINE void two_steps(Columns columns, AmxWeights& w) {
    I upper[8];
    load_words8(columns, 128 + 32 * half, upper);
    nibbles<half, 0>(columns, upper, w);
    nibbles<half, 1>(columns, upper, w);
  }
  template <int half, int part>
  CONCLAVE_INLINE void nibbles(Columns columns, const I* upper, AmxWeights& w) {
    I packed[8];
    load_words8(columns, 64 * half + 32 * part, packed);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const I bits = V::shr<2 * part>(upper[j]);
      const int at = 8 * part + j;
      put(w, 2 * half, at, V::ior(mask(packed[j], 0x0F0F0F0F), V::shl<4>(mask(bits, 0x03030303))));
      put(w, 2 * half + 1, at, V::ior(mask(V::shr<4>(packed[j]), 0x0F0F0F0F), mask(bits, 0x30303030)));
    }
  }
  static void unpack(Columns columns, int step, AmxWeights& w, AmxFactors& f) {
    switch (step) {
      case 0:
        V::load_columns4(columns, 192, w.scale);
        V::store(f.d, V::half_low(V::shr<16>(V::load_columns(columns, 206))));
        return V::store(f.m, V::zero());
      case 1:
        return two_steps<0>(columns, w);
      case 2:
        return;
      default:
        return two_steps<1>(columns, w);
    }
  }
};

#undef CONCLAVE_INLINE

}  // namespace conclave
