// Sixteen columns of q4_k, q5_k or q6_k, one chunk of 256 weights each, unpacked for tile products: levels times their
// scales, in two digits, with four of k and then the column innermost.
//
// Unpacking goes in small pieces, to be done between tile instructions. A format has
//
//   header<piece>(columns, weights, factors, part's)   once a chunk, first, in kAmxHeaderPieces pieces
//   unpack<part, piece>(columns, weights, part's)      parts 0 to 3, each in kAmxPartPieces pieces
//
// where the pieces of a header, and those of a part, share an AmxPart.
// Parts 0 and 1 write the first half of the chunk, digit[0] and digit[1]; parts 2 and 3 the second: each a quarter
// where kPartIsQuarter says so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/isa/avx512/vec.h"

namespace conclave {

inline constexpr int kAmxHeaderPieces = 5;
inline constexpr int kAmxPartPieces = 10;

struct alignas(64) AmxWeights {
  std::uint8_t digit[4][2][16][64];  // [64 of k][digit][k / 4][column * 4 + k % 4]
  // bf16, [group][column][2]: 128 + minimum, for both digits of a row's sum; then ones, for what the 128 is too much.
  std::uint16_t fold[16][32];
  __m512i scale[4];  // [groups 4 i ..]: a lane has a column's four scales
  __m512i high[8];   // levels' upper bits: of q5_k the whole chunk's, of q6_k half of it

  void complete_fold() {
    for (int g = 8; g < 16; ++g) Avx512::istore(fold[g], _mm512_set1_epi16(g == 8 ? 0x3F80 : 0));
  }
};

// What the pieces of a part hand on, in registers.
struct AmxPart {
  __m512i word[8];
  __m512i scale[4];  // 16 bits, as the format wants them
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
  // 32 bytes of each column, in such an order that each half, transposed, is four vectors of one word from each column.
  CONCLAVE_INLINE void load_words8(Columns columns, std::int64_t at, I* out) {
    load_four<0>(columns, at, out);
    load_four<1>(columns, at, out);
    load_four<2>(columns, at, out);
    load_four<3>(columns, at, out);
  }
  template <int i>
  CONCLAVE_INLINE void load_four(Columns columns, std::int64_t at, I* out) {
    const auto load = [&](int n) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(columns[n] + at)); };
    const I a = _mm512_inserti64x4(_mm512_castsi256_si512(load(i)), load(4 + i), 1);
    const I b = _mm512_inserti64x4(_mm512_castsi256_si512(load(8 + i)), load(12 + i), 1);
    out[i] = _mm512_shuffle_i32x4(a, b, 0x88);
    out[4 + i] = _mm512_shuffle_i32x4(a, b, 0xDD);
  }
  // Four by four words in each lane of 128 bits.
  CONCLAVE_INLINE void transpose4(I* r) {
    const I a = _mm512_unpacklo_epi32(r[0], r[1]);
    const I b = _mm512_unpacklo_epi32(r[2], r[3]);
    const I c = _mm512_unpackhi_epi32(r[0], r[1]);
    const I d = _mm512_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm512_unpacklo_epi64(a, b);
    r[1] = _mm512_unpackhi_epi64(a, b);
    r[2] = _mm512_unpacklo_epi64(c, d);
    r[3] = _mm512_unpackhi_epi64(c, d);
  }
  CONCLAVE_INLINE void load_high(Columns columns, std::int64_t at, AmxWeights& w) {
    load_words8(columns, at, w.high);
    transpose4(w.high);
    transpose4(w.high + 4);
  }
  // A part that is 32 bytes of each column, for formats that have scales<part>() and put<part>() of a word.
  template <class Format, int part, int piece>
  CONCLAVE_INLINE void unpack_words(Columns columns, std::int64_t at, AmxWeights& w, AmxPart& p) {
    if constexpr (piece == 0) {
      load_four<0>(columns, at, p.word);
      load_four<1>(columns, at, p.word);
    } else if constexpr (piece == 1) {
      load_four<2>(columns, at, p.word);
      load_four<3>(columns, at, p.word);
      Format::template scales<part>(w, p.scale);
    } else {
      constexpr int kWord = piece - 2;
      if constexpr (kWord % 4 == 0) transpose4(p.word + kWord);
      Format::template put<part>(kWord, p, w);
    }
  }

  // q4_k and q5_k: d, dmin and the 12 bytes of k_scales.h. The last piece is the format's own.
  template <int piece>
  CONCLAVE_INLINE void k_header(Columns columns, AmxWeights& w, AmxFactors& f, AmxPart& p) {
    I* const head = p.word;
    I* const min = p.scale;
    if constexpr (piece == 0) {
      V::load_columns4(columns, 0, head);
    } else if constexpr (piece == 1) {
      V::store(f.d, V::half_low(head[0]));
      V::store(f.m, V::half_low(V::shr<16>(head[0])));
      w.scale[0] = mask(head[1], 0x3F3F3F3F);
      w.scale[1] = V::ior(mask(head[3], 0x0F0F0F0F), mask(V::shr<2>(head[1]), 0x30303030));
      min[0] = mask(head[2], 0x3F3F3F3F);
      min[1] = V::ior(mask(V::shr<4>(head[3]), 0x0F0F0F0F), mask(V::shr<2>(head[2]), 0x30303030));
    } else if constexpr (piece < 4) {
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {  // 0x4300 + m is the bf16 of 128 + m
        V::istore(w.fold[4 * (piece - 2) + g],
                  _mm512_mask_shuffle_epi8(_mm512_set1_epi8(0x43), 0x5555555555555555ULL, min[piece - 2], spread(g)));
      }
    }
  }
  // 16-bit scales of group g in each column.
  CONCLAVE_INLINE I k_scale(const AmxWeights& w, int g) {
    return _mm512_shuffle_epi8(w.scale[g / 4], spread(g % 4));
  }
  // Both digits of them.
  CONCLAVE_INLINE void k_digits(const AmxWeights& w, int g, I* digit) {
    const I scale = k_scale(w, g);
    digit[0] = _mm512_and_si512(scale, _mm512_set1_epi16(7));
    digit[1] = _mm512_srli_epi16(scale, 3);
  }
#undef CONCLAVE_INLINE
};

#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

struct AmxQ4K : AmxUnpack {
  static constexpr std::int64_t kBytes = 144;
  static constexpr bool kHasMinimum = true;
  static constexpr bool kPartIsQuarter = true;
  static constexpr bool kHighIsSigned = false;
  static constexpr int kShift = 3;

  template <int piece>
  CONCLAVE_INLINE void header(Columns columns, AmxWeights& w, AmxFactors& f, AmxPart& p) {
    k_header<piece>(columns, w, f, p);
  }
  template <int part, int piece>
  CONCLAVE_INLINE void unpack(Columns columns, AmxWeights& w, AmxPart& p) {
    unpack_words<AmxQ4K, part, piece>(columns, 16 + 32 * part, w, p);
  }
  // Groups 2 * part and 2 * part + 1: the low and high nibbles of 32 bytes. High ones are not shifted down: their
  // scales are 12 bits up, and the upper half of the 16-bit product is taken.
  template <int part>
  CONCLAVE_INLINE void scales(const AmxWeights& w, I* scale) {
    const I odd = k_scale(w, 2 * part + 1);
    const I top = _mm512_set1_epi16(0x7000);
    k_digits(w, 2 * part, scale);
    scale[2] = _mm512_and_si512(_mm512_slli_epi16(odd, 12), top);
    scale[3] = _mm512_and_si512(_mm512_slli_epi16(odd, 9), top);
  }
  template <int part>
  CONCLAVE_INLINE void put(int j, const AmxPart& p, AmxWeights& w) {
    const I low = mask(p.word[j], 0x0F0F0F0F);
    const I high = mask(p.word[j], static_cast<int>(0xF0F0F0F0U));
    V::istore(w.digit[part][0][j], _mm512_mullo_epi16(low, p.scale[0]));
    V::istore(w.digit[part][1][j], _mm512_mullo_epi16(low, p.scale[1]));
    V::istore(w.digit[part][0][8 + j], _mm512_mulhi_epu16(high, p.scale[2]));
    V::istore(w.digit[part][1][8 + j], _mm512_mulhi_epu16(high, p.scale[3]));
  }
};

struct AmxQ5K : AmxUnpack {
  static constexpr std::int64_t kBytes = 176;
  static constexpr bool kHasMinimum = true;
  static constexpr bool kPartIsQuarter = true;
  static constexpr bool kHighIsSigned = false;
  static constexpr int kShift = 3;

  template <int piece>
  CONCLAVE_INLINE void header(Columns columns, AmxWeights& w, AmxFactors& f, AmxPart& p) {
    k_header<piece>(columns, w, f, p);
    if constexpr (piece == 4) load_high(columns, 16, w);
  }
  template <int part, int piece>
  CONCLAVE_INLINE void unpack(Columns columns, AmxWeights& w, AmxPart& p) {
    unpack_words<AmxQ5K, part, piece>(columns, 48 + 32 * part, w, p);
  }
  template <int part>
  CONCLAVE_INLINE void scales(const AmxWeights& w, I* scale) {
    k_digits(w, 2 * part, scale);
    k_digits(w, 2 * part + 1, scale + 2);
  }
  template <int part>
  CONCLAVE_INLINE void put(int j, const AmxPart& p, AmxWeights& w) {
    const I fifth[2] = {mask(V::shr<2 * part>(w.high[j]), 0x01010101),
                        mask(V::shr<2 * part + 1>(w.high[j]), 0x01010101)};
    const I low = V::ior(mask(p.word[j], 0x0F0F0F0F), V::shl<4>(fifth[0]));
    const I high = V::ior(mask(V::shr<4>(p.word[j]), 0x0F0F0F0F), V::shl<4>(fifth[1]));
    V::istore(w.digit[part][0][j], _mm512_mullo_epi16(low, p.scale[0]));
    V::istore(w.digit[part][1][j], _mm512_mullo_epi16(low, p.scale[1]));
    V::istore(w.digit[part][0][8 + j], _mm512_mullo_epi16(high, p.scale[2]));
    V::istore(w.digit[part][1][8 + j], _mm512_mullo_epi16(high, p.scale[3]));
  }
};

// Level less 32, times a signed scale: 13 bits and a sign, whose digits are an unsigned and a signed byte.
struct AmxQ6K : AmxUnpack {
  static constexpr std::int64_t kBytes = 210;
  static constexpr bool kHasMinimum = false;
  static constexpr bool kPartIsQuarter = false;
  static constexpr bool kHighIsSigned = true;
  static constexpr int kShift = 8;

  template <int piece>
  CONCLAVE_INLINE void header(Columns columns, AmxWeights& w, AmxFactors& f, AmxPart&) {
    if constexpr (piece == 0) V::load_columns4(columns, 192, w.scale);
    if constexpr (piece == 1) V::store(f.d, V::half_low(V::shr<16>(V::load_columns(columns, 206))));
  }
  // A part is 32 bytes of nibbles: the low ones belong to one step of 64, the high ones to the next. Two parts share 32
  // bytes of upper bits.
  template <int part, int piece>
  CONCLAVE_INLINE void unpack(Columns columns, AmxWeights& w, AmxPart& p) {
    if constexpr (part % 2 == 0 && piece == 0) load_high(columns, 128 + 16 * part, w);
    unpack_words<AmxQ6K, part, piece>(columns, 32 * part, w, p);
  }
  template <int part>
  CONCLAVE_INLINE void scales(const AmxWeights& w, I* scale) {
    constexpr int kStep = part / 2 * 2;
    constexpr int kGroup = part % 2 * 2;
    scale[0] = _mm512_srai_epi16(_mm512_shuffle_epi8(w.scale[kStep], spread(kGroup, 1)), 8);
    scale[1] = _mm512_srai_epi16(_mm512_shuffle_epi8(w.scale[kStep], spread(kGroup + 1, 1)), 8);
    scale[2] = _mm512_srai_epi16(_mm512_shuffle_epi8(w.scale[kStep + 1], spread(kGroup, 1)), 8);
    scale[3] = _mm512_srai_epi16(_mm512_shuffle_epi8(w.scale[kStep + 1], spread(kGroup + 1, 1)), 8);
  }
  template <int part>
  CONCLAVE_INLINE void put(int j, const AmxPart& p, AmxWeights& w) {
    const I bits = V::shr<2 * (part % 2)>(w.high[j]);
    const I low = V::ior(mask(p.word[j], 0x0F0F0F0F), V::shl<4>(mask(bits, 0x03030303)));
    const I high = V::ior(mask(V::shr<4>(p.word[j]), 0x0F0F0F0F), mask(bits, 0x30303030));
    const int at = part % 2 * 8 + j;
    put_levels(w, part / 2 * 2, at, low, p.scale[j / 4]);
    put_levels(w, part / 2 * 2 + 1, at, high, p.scale[2 + j / 4]);
  }
  CONCLAVE_INLINE void put_levels(AmxWeights& w, int step, int at, I level, I scale) {
    const I offset = _mm512_set1_epi16(32);
    const I even = _mm512_mullo_epi16(_mm512_sub_epi16(mask(level, 0x00FF00FF), offset), scale);
    const I odd = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(level, 8), offset), scale);
    V::istore(w.digit[step][0][at], _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAULL, even, _mm512_slli_epi16(odd, 8)));
    V::istore(w.digit[step][1][at], _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAULL, _mm512_srli_epi16(even, 8), odd));
  }
};

#undef CONCLAVE_INLINE

}  // namespace conclave
