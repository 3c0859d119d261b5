// Superblock products for one to three rows, where the weight stream is the bound: each column's block is unpacked in
// registers, lanes along k, four columns at a time. The integers are those of every other kernel, so are the results.
//
// Zen 4, 2026-11-15: 5 ns a q4_k block against 8 of the unpacked tile. Lost: vpdpbusd and vpmulld per group (slower on
// Intel), one column at a time (a horizontal sum each).
#pragma once

#include "backends/cpu/isa/avx512/vec.h"
#include "backends/cpu/kernels/streamed_tile.h"

namespace conclave {

struct FewRows {
  using V = Avx512;
  using Ahead = Product<V>::Ahead;
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
  CONCLAVE_INLINE __m128i sums4(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  }

  // q4_k and q5_k. The levels of a block are four vectors of groups (0, 2), (1, 3), (4, 6), (5, 7); sums of four
  // products fit into 16 bits, so that two vectors of them are packed before they are scaled.
  //
  // The headers of four columns are decoded together, one to each 128-bit lane: 8 bytes of scales, 8 of minimums.
  CONCLAVE_INLINE __m512i load_headers(const std::byte* const* columns, std::int64_t at) {
    __m512i head = _mm512_castsi128_si512(load128(columns[0] + at));
    head = _mm512_inserti32x4(head, load128(columns[1] + at), 1);
    head = _mm512_inserti32x4(head, load128(columns[2] + at), 2);
    return _mm512_inserti32x4(head, load128(columns[3] + at), 3);
  }
  CONCLAVE_INLINE __m512i decode_scales(__m512i head) {
    // With the dwords (factors, a, b, c) of k_scales.h:
    //   a & 3F    c & 0F | (a >> 2) & 30    b & 3F    (c >> 4) & 0F | (b >> 2) & 30
    const __m512i low = _mm512_shuffle_epi32(head, static_cast<_MM_PERM_ENUM>(0xED));  // a, c, b, c
    const __m512i low_shifted = _mm512_srlv_epi32(low, repeat4(0, 0, 0, 4));
    const __m512i high =
        _mm512_srli_epi32(_mm512_shuffle_epi32(head, static_cast<_MM_PERM_ENUM>(0xA5)), 2);  // a, a, b, b
    const __m512i kept = _mm512_and_si512(low_shifted, repeat4(0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F, 0x0F0F0F0F));
    return _mm512_or_si512(kept, _mm512_and_si512(high, repeat4(0, 0x30303030, 0, 0x30303030)));
  }
  CONCLAVE_INLINE __m512i repeat4(int a, int b, int c, int d) {
    return _mm512_broadcast_i32x4(_mm_setr_epi32(a, b, c, d));
  }
  // Four equal 16-bit numbers from byte a, four from byte b, in two lanes each of (a, b) and (c, d).
  CONCLAVE_INLINE __m512i spread(int a, int b, int c, int d) {
    const auto lane = [](int first, int second) {
      return _mm_unpacklo_epi64(_mm_set1_epi16(static_cast<short>(0x8000 | first)),
                                _mm_set1_epi16(static_cast<short>(0x8000 | second)));
    };
    __m512i index = _mm512_broadcast_i32x4(lane(a, b));
    return _mm512_mask_broadcast_i32x4(index, 0xFF00, lane(c, d));
  }
  // Dword 0 of each lane.
  CONCLAVE_INLINE __m128i firsts(__m512i x) {
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(_mm512_castsi128_si512(_mm_setr_epi32(0, 4, 8, 12)), x));
  }
  CONCLAVE_INLINE void load_pairs_of_groups(const std::int8_t* q, __m512i* x) {
    x[0] = two_halves(q, q + 64);
    x[1] = two_halves(q + 32, q + 96);
    x[2] = two_halves(q + 128, q + 192);
    x[3] = two_halves(q + 160, q + 224);
  }

  struct Q4K {
    static constexpr std::int64_t kBytes = 144;
    CONCLAVE_INLINE void unpack(const std::byte* w, __m512i* level) {
      const __m512i nibble = _mm512_set1_epi8(0x0F);
      for (int i = 0; i < 2; ++i) {
        const __m512i packed = load512(w + 16 + 64 * i);
        level[2 * i] = _mm512_and_si512(packed, nibble);
        level[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), nibble);
      }
    }
  };

  struct Q5K {
    static constexpr std::int64_t kBytes = 176;
    CONCLAVE_INLINE void unpack(const std::byte* w, __m512i* level) {
      const __m512i nibble = _mm512_set1_epi8(0x0F);
      const __m512i fifth = _mm512_set1_epi8(0x10);
      const __m512i high = _mm512_broadcast_i64x4(load256(w + 16));
      // Bit g of each byte to bit 4: a rotation by 4 - g keeps it in its byte.
      const auto bits = [&](int low, int up) {
        const __m512i by = _mm512_inserti64x4(_mm512_set1_epi32((4 - low) & 31), _mm256_set1_epi32((4 - up) & 31), 1);
        return _mm512_and_si512(_mm512_rolv_epi32(high, by), fifth);
      };
      const __m512i first = load512(w + 48);
      const __m512i second = load512(w + 112);
      level[0] = _mm512_or_si512(_mm512_and_si512(first, nibble), bits(0, 2));
      level[1] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(first, 4), nibble), bits(1, 3));
      level[2] = _mm512_or_si512(_mm512_and_si512(second, nibble), bits(4, 6));
      level[3] = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(second, 4), nibble), bits(5, 7));
    }
  };

  // Four columns of q4_k or q5_k, all chunks, M rows.
  template <class Format, int M>
  static void affine_columns(const std::byte* const* columns, std::int64_t chunks, const ProductRow* rows, Ahead& ahead,
                             float* out) {
    __m128 y[M];
    for (int r = 0; r < M; ++r) y[r] = _mm_setzero_ps();
    for (std::int64_t c = 0; c < chunks; ++c) {
      __m512i x[M][4];
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) load_pairs_of_groups(rows[r].q + c * kChunk, x[r]);
      const __m512i head = load_headers(columns, c * Format::kBytes);
      const __m512i scales = decode_scales(head);
      __m512i total[M][kColumns];
      const auto column = [&]<int n>() __attribute__((always_inline)) {
        const std::byte* w = columns[n] + c * Format::kBytes;
        ahead.ask();
        __m512i level[4];
        Format::unpack(w, level);
        const __m512i own = _mm512_shuffle_i32x4(scales, scales, n * 0x55);
        const __m512i first = _mm512_shuffle_epi8(own, spread(0, 1, 2, 3));
        const __m512i second = _mm512_shuffle_epi8(own, spread(4, 5, 6, 7));
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r) {
          __m512i sum[4];
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) sum[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), level[i], x[r][i]);
          const __m512i low = _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_packs_epi32(sum[0], sum[1]), first);
          total[r][n] = _mm512_dpwssd_epi32(low, _mm512_packs_epi32(sum[2], sum[3]), second);
        }
      };
      column.template operator()<0>();
      column.template operator()<1>();
      column.template operator()<2>();
      column.template operator()<3>();

      const __m256 factors = _mm256_cvtph_ps(firsts(head));
      const __m128 low = _mm256_castps256_ps128(factors);
      const __m128 high = _mm256_extractf128_ps(factors, 1);
      const __m128 d = _mm_shuffle_ps(low, high, 0x88);
      const __m128 m = _mm_shuffle_ps(low, high, 0xDD);
      const __m512i mins = _mm512_unpackhi_epi8(scales, _mm512_setzero_si512());
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        const __m128 scale = _mm_set1_ps(rows[r].scale[c]);
        const __m128i exact = sums4(total[r][0], total[r][1], total[r][2], total[r][3]);
        y[r] = _mm_add_ps(y[r], _mm_mul_ps(_mm_mul_ps(scale, d), _mm_cvtepi32_ps(exact)));
        __m512i folded = _mm512_madd_epi16(mins, _mm512_broadcast_i32x4(load128(rows[r].sum32 + c * 8)));
        folded = _mm512_add_epi32(folded, _mm512_shuffle_epi32(folded, static_cast<_MM_PERM_ENUM>(0x4E)));
        folded = _mm512_add_epi32(folded, _mm512_shuffle_epi32(folded, static_cast<_MM_PERM_ENUM>(0xB1)));
        y[r] = _mm_sub_ps(y[r], _mm_mul_ps(_mm_mul_ps(scale, m), _mm_cvtepi32_ps(firsts(folded))));
      }
    }
    for (int r = 0; r < M; ++r) _mm_storeu_ps(out + kTileColumns * r, y[r]);
  }

  // q6_k: levels in the order of the weights; a group of 16 is one 128-bit lane.
  struct Q6K {
    static constexpr std::int64_t kBytes = 210;
    CONCLAVE_INLINE void unpack(const std::byte* w, __m512i* level) {
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
        level[2 * i] = _mm512_or_si512(_mm512_and_si512(low, nibble), _mm512_and_si512(first, upper));
        level[2 * i + 1] =
            _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), nibble), _mm512_and_si512(second, upper));
      }
    }
    // Lane i of the result has 16-bit element first + i of its source in all its elements.
    CONCLAVE_INLINE __m512i lanes(int first) {
      const auto pair = [](int element) {
        return _mm_set1_epi16(static_cast<short>((2 * element + 1) << 8 | 2 * element));
      };
      __m512i index = _mm512_castsi128_si512(pair(first));
      index = _mm512_inserti32x4(index, pair(first + 1), 1);
      index = _mm512_inserti32x4(index, pair(first + 2), 2);
      return _mm512_inserti32x4(index, pair(first + 3), 3);
    }
  };

  // Four columns of q6_k, all chunks, M rows.
  template <int M>
  static void q6_k_columns(const std::byte* const* columns, std::int64_t chunks, const ProductRow* rows, Ahead& ahead,
                           float* out) {
    __m128 y[M];
    for (int r = 0; r < M; ++r) y[r] = _mm_setzero_ps();
    for (std::int64_t c = 0; c < chunks; ++c) {
      __m512i total[M][kColumns];
      std::uint16_t factor[kColumns];
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) {
        const std::byte* w = columns[n] + c * Q6K::kBytes;
        ahead.ask();
        factor[n] = static_cast<std::uint16_t>(word(w + 206) >> 16);
        __m512i level[4];
        Q6K::unpack(w, level);
        const __m256i scales = _mm256_cvtepi8_epi16(load128(w + 192));
        const __m512i low = _mm512_broadcast_i32x4(_mm256_castsi256_si128(scales));
        const __m512i high = _mm512_broadcast_i32x4(_mm256_extracti128_si256(scales, 1));
        const __m512i scale[4] = {_mm512_shuffle_epi8(low, Q6K::lanes(0)), _mm512_shuffle_epi8(low, Q6K::lanes(4)),
                                  _mm512_shuffle_epi8(high, Q6K::lanes(0)), _mm512_shuffle_epi8(high, Q6K::lanes(4))};
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r) {
          const std::int8_t* q = rows[r].q + c * kChunk;
          __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) sum = scaled_dot(sum, level[i], load512(q + 64 * i), scale[i]);
          // Levels are 32 above their values.
          const __m256i above = _mm256_slli_epi32(_mm256_madd_epi16(scales, load256(rows[r].sum16 + c * 16)), 5);
          total[r][n] = _mm512_sub_epi32(sum, _mm512_zextsi256_si512(above));
        }
      }
      const __m128 d =
          _mm_cvtph_ps(_mm_setr_epi16(static_cast<short>(factor[0]), static_cast<short>(factor[1]),
                                      static_cast<short>(factor[2]), static_cast<short>(factor[3]), 0, 0, 0, 0));
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        const __m128i exact = sums4(total[r][0], total[r][1], total[r][2], total[r][3]);
        const __m128 scale = _mm_set1_ps(rows[r].scale[c]);
        y[r] = _mm_add_ps(y[r], _mm_mul_ps(_mm_mul_ps(scale, d), _mm_cvtepi32_ps(exact)));
      }
    }
    for (int r = 0; r < M; ++r) _mm_storeu_ps(out + kTileColumns * r, y[r]);
  }

  template <class Format, int M>
  static void tile(const TileProduct& p) {
    const std::byte* columns[kTileColumns];
    Product<V>::find_columns(p, columns);
    // Each block asks for its share of what comes next: a few lines at a time, all the time, in the order of their
    // addresses. (In bursts of a quarter tile the same lines cost a fifth of the bandwidth. Each block asking for the one
    // at its place in the next tile, four columns at once, reaches 0.8 of it on Zen 5 where this reaches 0.95.)
    Ahead ahead(p, (p.n_columns + kColumns - 1) / kColumns * kColumns * (p.k / kChunk));
    for (int n = 0; n < p.n_columns; n += kColumns) {
      if constexpr (Format::kBytes == Q6K::kBytes) {
        q6_k_columns<M>(columns + n, p.k / kChunk, p.rows, ahead, p.out + n);
      } else {
        affine_columns<Format, M>(columns + n, p.k / kChunk, p.rows, ahead, p.out + n);
      }
    }
  }

  // Up to three rows here, more as a streamed tile.
  template <class Format, class Streamed>
  static void k_tile(const TileProduct& p) {
    if (p.n_rows == 1) return tile<Format, 1>(p);
    if (p.n_rows == 2) return tile<Format, 2>(p);
    if (p.n_rows == 3) return tile<Format, 3>(p);
    StreamedTile<V>::template k_tile<Streamed>(p);
  }

  // Over a table of streamed tiles. A streamed tile needs fewer instructions for two and three rows, but reads sixteen
  // columns at once: from memory, Zen 5, q4_k, two rows, it reaches 0.65 to 0.9 of the bandwidth, four columns at a time
  // 0.93.
  static constexpr ProductKernels over(ProductKernels table) {
    using S = StreamedTile<V>;
    table.tile[static_cast<std::size_t>(DType::q4_k)] = k_tile<Q4K, S::Q4K>;
    table.tile[static_cast<std::size_t>(DType::q5_k)] = k_tile<Q5K, S::Q5K>;
    table.tile[static_cast<std::size_t>(DType::q6_k)] = k_tile<Q6K, S::Q6K>;
    return table;
  }
#undef CONCLAVE_INLINE
};

}  // namespace conclave
