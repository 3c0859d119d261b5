// Superblock products for one to three rows, where the weight stream is the bound: each block is unpacked in registers,
// lanes along k, four blocks at a time. The integers are those of every other kernel, so are the results.
//
// One row, where k is a multiple of 1024: four chunks of one column after the other, so that memory is read from its
// first byte to its last. Otherwise one chunk of four columns, which share the loads of a row's values.
//
// Zen 5, 2026-11-18, q4_k, one row of 2048, share of the read bandwidth of two cores: 0.98 one column after the other, 0.93
// four at a time, where memory reads 48 GB/s; 0.93 and 0.88 where it reads 65 or more. From the nearest cache 3.2 and
// 2.8 ns a block. Two and three rows lose more by their loads than they gain.
// Lost (Zen 4): vpdpbusd and vpmulld per group (slower on Intel), a horizontal sum for each block.
#pragma once

#include "backends/cpu/isa/avx512/vec.h"
#include "backends/cpu/kernels/streamed_tile.h"

namespace conclave {

struct FewRows {
  using V = Avx512;
  using Ahead = Product<V>::Ahead;
  static constexpr int kBlocks = 4;  // at a time
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

  // Where four blocks are: of four columns at one chunk, or, `kAlong`, of one column at four chunks.
  template <bool kAlong>
  struct FourBlocks {
    const std::byte* at[kBlocks];
    std::int64_t chunk;  // the first block's

    CONCLAVE_INLINE std::int64_t chunks_behind(int n) { return kAlong ? n : 0; }
    const std::int8_t* x(const ProductRow& row, int n) const { return row.q + (chunk + chunks_behind(n)) * kChunk; }
    __m128 scales(const ProductRow& row) const {
      return kAlong ? _mm_loadu_ps(row.scale + chunk) : _mm_set1_ps(row.scale[chunk]);
    }
    // The eight sums of 32 values, a block's to each 128-bit lane.
    __m512i sums(const ProductRow& row) const {
      const std::int16_t* first = row.sum32 + chunk * 8;
      return kAlong ? load512(first) : _mm512_broadcast_i32x4(load128(first));
    }
  };

  // q4_k and q5_k. A block's levels are four vectors of two groups each; sums of four products fit into 16 bits, so that
  // two vectors of them are packed before they are scaled.
  //
  // The headers of four blocks are decoded together, one to each 128-bit lane: 8 bytes of scales, 8 of minimums.
  CONCLAVE_INLINE __m512i load_headers(const std::byte* const* blocks) {
    __m512i head = _mm512_castsi128_si512(load128(blocks[0]));
    head = _mm512_inserti32x4(head, load128(blocks[1]), 1);
    head = _mm512_inserti32x4(head, load128(blocks[2]), 2);
    return _mm512_inserti32x4(head, load128(blocks[3]), 3);
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
  // Nibbles of the 32 bytes at w: the low ones, then the high ones.
  CONCLAVE_INLINE __m512i nibbles(const std::byte* w) {
    const __m512i by = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    return _mm512_and_si512(_mm512_srlv_epi16(_mm512_broadcast_i64x4(load256(w)), by), _mm512_set1_epi8(0x0F));
  }

  struct Q4K {
    static constexpr std::int64_t kBytes = 144;
    static constexpr bool kAffine = true;
    CONCLAVE_INLINE __m512i levels(const std::byte* w, int pair) { return nibbles(w + 16 + 32 * pair); }
  };

  struct Q5K {
    static constexpr std::int64_t kBytes = 176;
    static constexpr bool kAffine = true;
    CONCLAVE_INLINE __m512i levels(const std::byte* w, int pair) {
      // Bit g of each byte to bit 4: a rotation by 4 - g keeps it in its byte.
      const __m512i by =
          _mm512_inserti64x4(_mm512_set1_epi32((4 - 2 * pair) & 31), _mm256_set1_epi32((3 - 2 * pair) & 31), 1);
      const __m512i fifth = _mm512_rolv_epi32(_mm512_broadcast_i64x4(load256(w + 16)), by);
      return _mm512_or_si512(nibbles(w + 48 + 32 * pair), _mm512_and_si512(fifth, _mm512_set1_epi8(0x10)));
    }
  };

  template <class Format, int M, bool kAlong>
  CONCLAVE_INLINE void affine_blocks(const FourBlocks<kAlong>& blocks, const ProductRow* rows, Ahead& ahead,
                                     __m128* plus, __m128* minus) {
    const __m512i head = load_headers(blocks.at);
    const __m512i scales = decode_scales(head);
    __m512i total[M][kBlocks];
    const auto block = [&]<int n>() __attribute__((always_inline)) {
      ahead.ask();
      __m512i level[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) level[i] = Format::levels(blocks.at[n], i);
      const __m512i own = _mm512_shuffle_i32x4(scales, scales, n * 0x55);
      const __m512i first = _mm512_shuffle_epi8(own, spread(0, 2, 1, 3));
      const __m512i second = _mm512_shuffle_epi8(own, spread(4, 6, 5, 7));
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        const std::int8_t* x = blocks.x(rows[r], n);
        __m512i sum[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sum[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), level[i], load512(x + 64 * i));
        const __m512i low = _mm512_dpwssd_epi32(_mm512_setzero_si512(), _mm512_packs_epi32(sum[0], sum[1]), first);
        total[r][n] = _mm512_dpwssd_epi32(low, _mm512_packs_epi32(sum[2], sum[3]), second);
      }
    };
    block.template operator()<0>();
    block.template operator()<1>();
    block.template operator()<2>();
    block.template operator()<3>();

    const __m256 factors = _mm256_cvtph_ps(firsts(head));
    const __m128 low = _mm256_castps256_ps128(factors);
    const __m128 high = _mm256_extractf128_ps(factors, 1);
    const __m128 d = _mm_shuffle_ps(low, high, 0x88);
    const __m128 m = _mm_shuffle_ps(low, high, 0xDD);
    const __m512i mins = _mm512_unpackhi_epi8(scales, _mm512_setzero_si512());
#pragma GCC unroll 4
    for (int r = 0; r < M; ++r) {
      const __m128 scale = blocks.scales(rows[r]);
      const __m128i exact = sums4(total[r][0], total[r][1], total[r][2], total[r][3]);
      plus[r] = _mm_mul_ps(_mm_mul_ps(scale, d), _mm_cvtepi32_ps(exact));
      __m512i folded = _mm512_madd_epi16(mins, blocks.sums(rows[r]));
      folded = _mm512_add_epi32(folded, _mm512_shuffle_epi32(folded, static_cast<_MM_PERM_ENUM>(0x4E)));
      folded = _mm512_add_epi32(folded, _mm512_shuffle_epi32(folded, static_cast<_MM_PERM_ENUM>(0xB1)));
      minus[r] = _mm_mul_ps(_mm_mul_ps(scale, m), _mm_cvtepi32_ps(firsts(folded)));
    }
  }

  // q6_k: levels in the order of the weights; a group of 16 is one 128-bit lane.
  struct Q6K {
    static constexpr std::int64_t kBytes = 210;
    static constexpr bool kAffine = false;
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

  template <int M, bool kAlong>
  CONCLAVE_INLINE void q6_k_blocks(const FourBlocks<kAlong>& blocks, const ProductRow* rows, Ahead& ahead,
                                   __m128* plus) {
    __m512i total[M][kBlocks];
    std::uint16_t factor[kBlocks];
#pragma GCC unroll 4
    for (int n = 0; n < kBlocks; ++n) {
      const std::byte* w = blocks.at[n];
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
        const std::int8_t* x = blocks.x(rows[r], n);
        __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) sum = scaled_dot(sum, level[i], load512(x + 64 * i), scale[i]);
        // Levels are 32 above their values.
        const __m256i sums = load256(rows[r].sum16 + (blocks.chunk + blocks.chunks_behind(n)) * 16);
        const __m256i above = _mm256_slli_epi32(_mm256_madd_epi16(scales, sums), 5);
        total[r][n] = _mm512_sub_epi32(sum, _mm512_zextsi256_si512(above));
      }
    }
    const __m128 d =
        _mm_cvtph_ps(_mm_setr_epi16(static_cast<short>(factor[0]), static_cast<short>(factor[1]),
                                    static_cast<short>(factor[2]), static_cast<short>(factor[3]), 0, 0, 0, 0));
#pragma GCC unroll 4
    for (int r = 0; r < M; ++r) {
      const __m128i exact = sums4(total[r][0], total[r][1], total[r][2], total[r][3]);
      plus[r] = _mm_mul_ps(_mm_mul_ps(blocks.scales(rows[r]), d), _mm_cvtepi32_ps(exact));
    }
  }

  // What four blocks add to y, and what those of an affine format then take from it.
  template <class Format, int M, bool kAlong>
  CONCLAVE_INLINE void multiply(const FourBlocks<kAlong>& blocks, const ProductRow* rows, Ahead& ahead, __m128* plus,
                                __m128* minus) {
    if constexpr (Format::kAffine) {
      affine_blocks<Format, M>(blocks, rows, ahead, plus, minus);
    } else {
      q6_k_blocks<M>(blocks, rows, ahead, plus);
    }
  }

  // One chunk of four columns after the other.
  template <class Format, int M>
  static void by_chunks(const TileProduct& p) {
    const std::byte* columns[kTileColumns];
    Product<V>::find_columns(p, columns);
    const std::int64_t chunks = p.k / kChunk;
    // What comes next is asked for a few lines at a time, all the time, in the order of its addresses. (In bursts of a
    // quarter tile the same lines cost a fifth of the bandwidth. Each block asking for the one at its place in the next
    // tile, four columns at once, reaches 0.8 of it on Zen 5 where this reaches 0.95.)
    Ahead ahead(p, (p.n_columns + kBlocks - 1) / kBlocks * kBlocks * chunks);
    for (int n = 0; n < p.n_columns; n += kBlocks) {
      __m128 y[M];
      for (int r = 0; r < M; ++r) y[r] = _mm_setzero_ps();
      for (std::int64_t c = 0; c < chunks; ++c) {
        FourBlocks<false> blocks{.chunk = c};
        for (int i = 0; i < kBlocks; ++i) blocks.at[i] = columns[n + i] + c * Format::kBytes;
        __m128 plus[M];
        __m128 minus[M];
        multiply<Format, M>(blocks, p.rows, ahead, plus, minus);
#pragma GCC unroll 4
        for (int r = 0; r < M; ++r) {
          y[r] = _mm_add_ps(y[r], plus[r]);
          if constexpr (Format::kAffine) y[r] = _mm_sub_ps(y[r], minus[r]);
        }
      }
      for (int r = 0; r < M; ++r) _mm_storeu_ps(p.out + kTileColumns * r + n, y[r]);
    }
  }

  // One row, four chunks of a column after the other: memory is read in the order of its addresses. (More rows would have
  // to load their activations for every column.) What blocks add is kept until four columns can be added up together.
  static constexpr std::int64_t kMostChunks = 128;
  static bool goes_by_columns(const TileProduct& p) {
    return p.n_rows == 1 && p.n_columns % kBlocks == 0 && p.k % (kBlocks * kChunk) == 0 && p.k <= kMostChunks * kChunk;
  }
  template <class Format>
  static void by_columns(const TileProduct& p) {
    const std::int64_t chunks = p.k / kChunk;
    Ahead ahead(p, p.n_columns * chunks);
    __m128 plus[kMostChunks];  // [four chunks][column]
    __m128 minus[kMostChunks];
    for (int first = 0; first < p.n_columns; first += kBlocks) {
      for (int n = 0; n < kBlocks; ++n) {
        const std::byte* column = p.weights + (first + n) * p.column_stride;
        for (std::int64_t c = 0; c < chunks; c += kBlocks) {
          FourBlocks<true> blocks{.chunk = c};
          for (int i = 0; i < kBlocks; ++i) blocks.at[i] = column + (c + i) * Format::kBytes;
          multiply<Format, 1>(blocks, p.rows, ahead, plus + c + n, minus + c + n);
        }
      }
      __m128 y = _mm_setzero_ps();
      for (std::int64_t c = 0; c < chunks; c += kBlocks) {
        __m128* const add = plus + c;
        __m128* const take = minus + c;
        _MM_TRANSPOSE4_PS(add[0], add[1], add[2], add[3]);
        if constexpr (Format::kAffine) _MM_TRANSPOSE4_PS(take[0], take[1], take[2], take[3]);
#pragma GCC unroll 4
        for (int i = 0; i < kBlocks; ++i) {
          y = _mm_add_ps(y, add[i]);
          if constexpr (Format::kAffine) y = _mm_sub_ps(y, take[i]);
        }
      }
      _mm_storeu_ps(p.out + first, y);
    }
  }

  // Up to three rows here, more as a streamed tile.
  template <class Format, class Streamed>
  static void k_tile(const TileProduct& p) {
    if (goes_by_columns(p)) return by_columns<Format>(p);
    if (p.n_rows == 1) return by_chunks<Format, 1>(p);
    if (p.n_rows == 2) return by_chunks<Format, 2>(p);
    if (p.n_rows == 3) return by_chunks<Format, 3>(p);
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
