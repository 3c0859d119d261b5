// Superblock products for one to three rows, where the weight stream is the bound: each column's block is unpacked in
// registers, lanes along k, four columns at a time. The integers are those of every other kernel, so are the results.
//
// Zen 4, 2026-11-15: 5 ns a q4_k block against 8 of the unpacked tile. Lost: vpdpbusd and vpmulld per group (slower on
// Intel), one column at a time (a horizontal sum each).
#pragma once

#include "backends/cpu/isa/avx512/vec.h"
#include "backends/cpu/kernels/product.h"

namespace conclave {

struct FewRows {
  using V = Avx512;
  static constexpr int kColumns = 4;
#define CONCLAVE_INLINE [[gnu::always_inline]] static inline

  CONCLAVE_INLINE __m512i load512(const void* p) {
    return _mm512_loadu_si512(p);
  }
  CONCLAVE_INLINE __m256i load256(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  CONCLAVE_INLINE __m128i load128(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  CONCLAVE_INLINE std::uint32_t word(const std::byte* p) {
    return static_cast<std::uint32_t>(*reinterpret_cast<const V::Word*>(p));
  }
  CONCLAVE_INLINE __m512i two_halves(const void* low, const void* high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(load256(low)), load256(high), 1);
  }
  // acc + sum over the pairs of bytes in each 32 bits, each pair times its 16-bit scale.
  CONCLAVE_INLINE __m512i scaled_dot(__m512i acc, __m512i levels, __m512i x, __m512i scales) {
    return _mm512_dpwssd_epi32(acc, _mm512_maddubs_epi16(levels, x), scales);
  }

  // The sums of four vectors, in order.
  CONCLAVE_INLINE __m128i sums4(__m128i a, __m128i b, __m128i c, __m128i d) {
    const __m128i ab = _mm_add_epi32(_mm_unpacklo_epi32(a, b), _mm_unpackhi_epi32(a, b));
    const __m128i cd = _mm_add_epi32(_mm_unpacklo_epi32(c, d), _mm_unpackhi_epi32(c, d));
    return _mm_add_epi32(_mm_unpacklo_epi64(ab, cd), _mm_unpackhi_epi64(ab, cd));
  }
  CONCLAVE_INLINE __m256i half(__m512i x) {
    return _mm256_add_epi32(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  }
  CONCLAVE_INLINE __m128i sums4(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m256i ha = half(a);
    const __m256i hb = half(b);
    const __m256i hc = half(c);
    const __m256i hd = half(d);
    const __m256i ab = _mm256_add_epi32(_mm256_unpacklo_epi32(ha, hb), _mm256_unpackhi_epi32(ha, hb));
    const __m256i cd = _mm256_add_epi32(_mm256_unpacklo_epi32(hc, hd), _mm256_unpackhi_epi32(hc, hd));
    const __m256i all = _mm256_add_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  }

  // What one block of weights becomes: levels in four vectors, and the scales of their 16-bit pair sums.
  struct Block {
    __m512i level[4];
    __m512i scale[4];
    __m256i fold;  // 16-bit factors of the activations' sums: 8 minimums, or 16 scales
  };

  // Index bytes that spread 16-bit element a over the first 256 bits and b over the others.
  CONCLAVE_INLINE __m512i spread_bytes(int a, int b) {  // from bytes to zero-extended 16 bits
    return _mm512_inserti64x4(_mm512_set1_epi16(static_cast<short>(0x8000 | a)),
                              _mm256_set1_epi16(static_cast<short>(0x8000 | b)), 1);
  }

  // q4_k and q5_k: vectors hold groups (0, 2), (1, 3), (4, 6), (5, 7).
  CONCLAVE_INLINE void k_scales(const std::byte* w, Block& b) {
    const std::uint32_t s0 = word(w + 4);
    const std::uint32_t s1 = word(w + 8);
    const std::uint32_t s2 = word(w + 12);
    const std::uint64_t scale =
        (s0 & 0x3F3F3F3FU) | static_cast<std::uint64_t>((s2 & 0x0F0F0F0FU) | ((s0 >> 2) & 0x30303030U)) << 32;
    const std::uint64_t min =
        (s1 & 0x3F3F3F3FU) | static_cast<std::uint64_t>(((s2 >> 4) & 0x0F0F0F0FU) | ((s1 >> 2) & 0x30303030U)) << 32;
    const __m512i all = _mm512_set1_epi64(static_cast<long long>(scale));
    b.scale[0] = _mm512_shuffle_epi8(all, spread_bytes(0, 2));
    b.scale[1] = _mm512_shuffle_epi8(all, spread_bytes(1, 3));
    b.scale[2] = _mm512_shuffle_epi8(all, spread_bytes(4, 6));
    b.scale[3] = _mm512_shuffle_epi8(all, spread_bytes(5, 7));
    b.fold = _mm256_castsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<long long>(min))));
  }

  struct Q4K {
    static constexpr std::int64_t kBytes = 144;
    static constexpr bool kAffine = true;
    CONCLAVE_INLINE void load_x(const std::int8_t* q, __m512i* x) {
      x[0] = two_halves(q, q + 64);
      x[1] = two_halves(q + 32, q + 96);
      x[2] = two_halves(q + 128, q + 192);
      x[3] = two_halves(q + 160, q + 224);
    }
    CONCLAVE_INLINE void unpack(const std::byte* w, Block& b) {
      const __m512i nibble = _mm512_set1_epi8(0x0F);
      k_scales(w, b);
      for (int i = 0; i < 2; ++i) {
        const __m512i packed = load512(w + 16 + 64 * i);
        b.level[2 * i] = _mm512_and_si512(packed, nibble);
        b.level[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), nibble);
      }
    }
    CONCLAVE_INLINE std::uint32_t factors(const std::byte* w) { return word(w); }
  };

  struct Q5K {
    static constexpr std::int64_t kBytes = 176;
    static constexpr bool kAffine = true;
    CONCLAVE_INLINE void load_x(const std::int8_t* q, __m512i* x) { Q4K::load_x(q, x); }
    CONCLAVE_INLINE void unpack(const std::byte* w, Block& b) {
      const __m512i nibble = _mm512_set1_epi8(0x0F);
      const __m512i fifth = _mm512_set1_epi8(0x10);
      k_scales(w, b);
      const __m512i high = _mm512_broadcast_i64x4(load256(w + 16));
      // Bit g of each byte to bit 4: a rotation by 4 - g keeps it in its byte.
      const auto bits = [&](int low, int up) {
        const __m512i by = _mm512_inserti64x4(_mm512_set1_epi32((4 - low) & 31), _mm256_set1_epi32((4 - up) & 31), 1);
        return _mm512_and_si512(_mm512_rolv_epi32(high, by), fifth);
      };
      const __m512i first = load512(w + 48);
      const __m512i second = load512(w + 112);
      b.level[0] = _mm512_or_si512(_mm512_and_si512(first, nibble), bits(0, 2));
      b.level[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(first, 4), nibble), bits(1, 3));
      b.level[2] = _mm512_or_si512(_mm512_and_si512(second, nibble), bits(4, 6));
      b.level[3] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(second, 4), nibble), bits(5, 7));
    }
    CONCLAVE_INLINE std::uint32_t factors(const std::byte* w) { return word(w); }
  };

  struct Q6K {
    static constexpr std::int64_t kBytes = 210;
    static constexpr bool kAffine = false;
    CONCLAVE_INLINE void load_x(const std::int8_t* q, __m512i* x) {
      for (int i = 0; i < 4; ++i) x[i] = load512(q + 64 * i);
    }
    CONCLAVE_INLINE void unpack(const std::byte* w, Block& b) {
      const __m512i nibble = _mm512_set1_epi8(0x0F);
      const __m512i upper = _mm512_set1_epi8(0x30);
      for (int i = 0; i < 2; ++i) {
        const __m512i low = load512(w + 64 * i);
        const __m512i high = _mm512_broadcast_i64x4(load256(w + 128 + 32 * i));
        // Bits 2s and 2s+1 to bits 4 and 5, within their bytes.
        const __m512i first =
            _mm512_rolv_epi32(high, _mm512_inserti64x4(_mm512_set1_epi32(4), _mm256_set1_epi32(2), 1));
        const __m512i second =
            _mm512_rolv_epi32(high, _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi32(30), 1));
        b.level[2 * i] = _mm512_or_si512(_mm512_and_si512(low, nibble), _mm512_and_si512(first, upper));
        b.level[2 * i + 1] =
            _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), nibble), _mm512_and_si512(second, upper));
      }
      b.fold = _mm256_cvtepi8_epi16(load128(w + 192));
      // A group of 16 weights is one 128-bit lane: lane i of vector v gets scale 4v + i in all its elements.
      const __m512i low = _mm512_broadcast_i32x4(_mm256_castsi256_si128(b.fold));
      const __m512i high = _mm512_broadcast_i32x4(_mm256_extracti128_si256(b.fold, 1));
      b.scale[0] = _mm512_shuffle_epi8(low, lanes(0));
      b.scale[1] = _mm512_shuffle_epi8(low, lanes(4));
      b.scale[2] = _mm512_shuffle_epi8(high, lanes(0));
      b.scale[3] = _mm512_shuffle_epi8(high, lanes(4));
    }
    CONCLAVE_INLINE __m512i lanes(int first) {
      const auto pair = [](int element) {
        return _mm_set1_epi16(static_cast<short>((2 * element + 1) << 8 | 2 * element));
      };
      __m512i index = _mm512_castsi128_si512(pair(first));
      index = _mm512_inserti32x4(index, pair(first + 1), 1);
      index = _mm512_inserti32x4(index, pair(first + 2), 2);
      return _mm512_inserti32x4(index, pair(first + 3), 3);
    }
    CONCLAVE_INLINE std::uint32_t factors(const std::byte* w) { return word(w + 206) >> 16; }
  };

  // Four columns, all chunks, M rows.
  template <class Format, int M>
  static void columns4(const std::byte* const* columns, std::int64_t chunks, const ProductRow* rows, float* out) {
    __m128 y[M];
    for (int r = 0; r < M; ++r) y[r] = _mm_setzero_ps();
    for (std::int64_t c = 0; c < chunks; ++c) {
      __m512i x[M][4];
      __m256i sums[M];
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        Format::load_x(rows[r].q + c * kChunk, x[r]);
        sums[r] =
            Format::kAffine ? _mm256_castsi128_si256(load128(rows[r].sum32 + c * 8)) : load256(rows[r].sum16 + c * 16);
      }
      __m512i total[M][kColumns];
      __m128i fold[M][kColumns];
      std::uint32_t factor[kColumns];
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) {
        const std::byte* w = columns[n] + c * Format::kBytes;
        Block b;
        Format::unpack(w, b);
        factor[n] = Format::factors(w);
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r) {
          __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) sum = scaled_dot(sum, b.level[i], x[r][i], b.scale[i]);
          if constexpr (Format::kAffine) {
            fold[r][n] = _mm_madd_epi16(_mm256_castsi256_si128(b.fold), _mm256_castsi256_si128(sums[r]));
          } else {  // levels are 32 above their values
            const __m256i above = _mm256_slli_epi32(_mm256_madd_epi16(b.fold, sums[r]), 5);
            sum = _mm512_sub_epi32(sum, _mm512_zextsi256_si512(above));
          }
          total[r][n] = sum;
        }
      }
      const __m256 factors = _mm256_cvtph_ps(_mm_setr_epi32(static_cast<int>(factor[0]), static_cast<int>(factor[1]),
                                                            static_cast<int>(factor[2]), static_cast<int>(factor[3])));
      const __m128 low = _mm256_castps256_ps128(factors);
      const __m128 high = _mm256_extractf128_ps(factors, 1);
      const __m128 d = _mm_shuffle_ps(low, high, 0x88);
      const __m128 m = _mm_shuffle_ps(low, high, 0xDD);
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        const __m128 scale = _mm_set1_ps(rows[r].scale[c]);
        const __m128i exact = sums4(total[r][0], total[r][1], total[r][2], total[r][3]);
        y[r] = _mm_add_ps(y[r], _mm_mul_ps(_mm_mul_ps(scale, d), _mm_cvtepi32_ps(exact)));
        if constexpr (Format::kAffine) {
          const __m128i folded = sums4(fold[r][0], fold[r][1], fold[r][2], fold[r][3]);
          y[r] = _mm_sub_ps(y[r], _mm_mul_ps(_mm_mul_ps(scale, m), _mm_cvtepi32_ps(folded)));
        }
      }
    }
    for (int r = 0; r < M; ++r) _mm_storeu_ps(out + kTileColumns * r, y[r]);
  }

  template <class Format, int M>
  static void tile(const TileProduct& p) {
    const std::byte* columns[kTileColumns];
    Product<V>::find_columns(p, columns);
    for (int n = 0; n < p.n_columns; n += kColumns) {
      Product<V>::ask_ahead(p, n / kColumns, (p.n_columns + kColumns - 1) / kColumns);
      columns4<Format, M>(columns + n, p.k / kChunk, p.rows, p.out + n);
    }
  }

  template <class Format, TileKernel many>
  static void k_tile(const TileProduct& p) {
    if (p.n_rows == 1) return tile<Format, 1>(p);
    if (p.n_rows == 2) return tile<Format, 2>(p);
    many(p);
  }

  // The kernels of the formats that have one here, with `many` taking over where there are more rows.
  template <TileKernel q4_k, TileKernel q5_k, TileKernel q6_k>
  static constexpr ProductKernels over(ProductKernels table) {
    table.tile[static_cast<std::size_t>(DType::q4_k)] = k_tile<Q4K, q4_k>;
    table.tile[static_cast<std::size_t>(DType::q5_k)] = k_tile<Q5K, q5_k>;
    table.tile[static_cast<std::size_t>(DType::q6_k)] = k_tile<Q6K, q6_k>;
    return table;
  }
#undef CONCLAVE_INLINE
};

}  // namespace conclave
