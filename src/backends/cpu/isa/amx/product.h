// Superblock products on AMX tiles: 16 columns of weights, with each level already multiplied by its group's scale,
// times 16 or 32 rows of activations. A scaled level has up to 14 bits and a sign: an unsigned low byte and a signed high
// byte, each a tile product over the whole superblock. Both sums are exact integers, so the results are those of every
// other row.
//
// Emerald Rapids, 2026-11-15, 32 rows, a chunk: tile products 122 ns alone on a core and 380 where its two threads both
// multiply, unpacking 140, the rest 86. Lost: tile products per group of 32 with the scales applied to their sums (2.5
// times slower on 128 rows), unpacking a chunk ahead of the tile unit (a tenth slower: the L1 is full).
#pragma once

#include "backends/cpu/isa/avx512/few_rows.h"
#include "backends/cpu/isa/avx512/vec.h"
#include "backends/cpu/kernels/product.h"

namespace conclave {

struct AmxProduct {
  using V = Avx512;
  static constexpr std::int64_t kMinRows = 17;  // one block of rows is no faster than the vectors of avx512
  static constexpr int kRows = 16;

  // 16 rows of activations, one chunk; rows past the last are zeros.
  struct alignas(64) Activations {
    std::int8_t q[64][64];            // [k / 4][row * 4 + k % 4]
    std::int16_t sum32[4][kRows][2];  // [pair of groups][row][group]
    float scale[kRows];
  };
  // 16 columns of weights, one chunk.
  struct alignas(64) Weights {
    std::uint8_t low[kRows][256];  // [column][k]
    std::int8_t high[kRows][256];
    std::int16_t min[kRows][8];
    float d[kRows];
    float m[kRows];
  };
  // Sums over a chunk. All that one chunk needs fits twice into an L1 of 48 KiB: two threads may share it.
  struct alignas(64) Sums {
    std::int32_t low[kRows][16];  // [column][row]
    std::int32_t high[kRows][16];
  };

  static void pack(const ProductRow* rows, std::int64_t n_rows, std::int64_t k, std::byte* to) {
    auto* out = reinterpret_cast<Activations*>(to);
    static const std::int8_t kNone[kChunk] = {};
    const std::int64_t chunks = k / kChunk;
    for (std::int64_t first = 0; first < n_rows; first += kRows) {
      for (std::int64_t c = 0; c < chunks; ++c, ++out) {
        const std::byte* q[kRows];
        for (int r = 0; r < kRows; ++r) {
          const bool is_row = first + r < n_rows;
          const ProductRow& row = rows[is_row ? first + r : first];
          q[r] = reinterpret_cast<const std::byte*>(is_row ? row.q + c * kChunk : kNone);
          out->scale[r] = is_row ? row.scale[c] : 0.0F;
          for (int p = 0; p < 4; ++p) {
            out->sum32[p][r][0] = is_row ? row.sum32[c * 8 + 2 * p] : std::int16_t{0};
            out->sum32[p][r][1] = is_row ? row.sum32[c * 8 + 2 * p + 1] : std::int16_t{0};
          }
        }
        for (int j = 0; j < 16; ++j) {
          V::I words[4];
          V::load_columns4(q, 16 * j, words);
          for (int i = 0; i < 4; ++i) V::istore(out->q[4 * j + i], words[i]);
        }
      }
    }
  }

  // (level - offset) * scale of 64 weights, split into bytes.
  [[gnu::always_inline]] static inline void scale_levels(__m512i level, __m512i scale, __m512i offset, __m512i* low,
                                                         __m512i* high) {
    const __m512i byte = _mm512_set1_epi16(0x00FF);
    const __m512i even = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_and_si512(level, byte), offset), scale);
    const __m512i odd = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(level, 8), offset), scale);
    *low = _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAULL, even, _mm512_slli_epi16(odd, 8));
    *high = _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAAULL, _mm512_srli_epi16(even, 8), odd);
  }
  // The two halves of x go to different groups of 32.
  [[gnu::always_inline]] static inline void store_halves(void* to, int first, int second, __m512i x) {
    auto* bytes = static_cast<std::uint8_t*>(to);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 32 * first), _mm512_castsi512_si256(x));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes + 32 * second), _mm512_extracti64x4_epi64(x, 1));
  }

  // q4_k and q5_k: vectors of levels hold groups (0, 2), (1, 3), (4, 6), (5, 7).
  template <class Format>
  struct Affine {
    static constexpr std::int64_t kBytes = Format::kBytes;
    static constexpr bool kHasMinimum = true;
    template <int n>
    [[gnu::always_inline]] static inline void column(const std::byte* w, __m512i scales, int at, Weights& out) {
      __m512i level[4];
      Format::unpack(w, level);
      const __m512i own = _mm512_shuffle_i32x4(scales, scales, n * 0x55);
      static constexpr int kFirst[4] = {0, 1, 4, 5};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int g = kFirst[i];
        const __m512i scale = _mm512_shuffle_epi8(own, FewRows::spread(g, g, g + 2, g + 2));
        __m512i low;
        __m512i high;
        scale_levels(level[i], scale, _mm512_setzero_si512(), &low, &high);
        store_halves(out.low[at], g, g + 2, low);
        store_halves(out.high[at], g, g + 2, high);
      }
    }
    static void unpack(const std::byte* const* columns, Weights& out) {
      for (int n = 0; n < kRows; n += 4) {
        const __m512i head = FewRows::load_headers(columns + n, 0);
        const __m512i scales = FewRows::decode_scales(head);
        const __m256 factors = _mm256_cvtph_ps(FewRows::firsts(head));
        const __m128 low = _mm256_castps256_ps128(factors);
        const __m128 high = _mm256_extractf128_ps(factors, 1);
        _mm_store_ps(out.d + n, _mm_shuffle_ps(low, high, 0x88));
        _mm_store_ps(out.m + n, _mm_shuffle_ps(low, high, 0xDD));
        V::istore(out.min[n], _mm512_unpackhi_epi8(scales, _mm512_setzero_si512()));
        column<0>(columns[n], scales, n, out);
        column<1>(columns[n + 1], scales, n + 1, out);
        column<2>(columns[n + 2], scales, n + 2, out);
        column<3>(columns[n + 3], scales, n + 3, out);
      }
    }
  };

  struct Q6K {
    static constexpr std::int64_t kBytes = FewRows::Q6K::kBytes;
    static constexpr bool kHasMinimum = false;
    static void unpack(const std::byte* const* columns, Weights& out) {
      const __m512i offset = _mm512_set1_epi16(32);
      for (int n = 0; n < kRows; ++n) {
        const std::byte* w = columns[n];
        __m512i level[4];
        FewRows::Q6K::unpack(w, level);
        const __m256i scales = _mm256_cvtepi8_epi16(FewRows::load128(w + 192));
        const __m512i half[2] = {_mm512_broadcast_i32x4(_mm256_castsi256_si128(scales)),
                                 _mm512_broadcast_i32x4(_mm256_extracti128_si256(scales, 1))};
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const __m512i scale = _mm512_shuffle_epi8(half[i / 2], FewRows::Q6K::lanes(i % 2 * 4));
          __m512i low;
          __m512i high;
          scale_levels(level[i], scale, offset, &low, &high);
          V::istore(out.low[n] + 64 * i, low);
          V::istore(out.high[n] + 64 * i, high);
        }
        out.d[n] = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(static_cast<int>(FewRows::word(w + 206) >> 16))));
      }
    }
  };

  struct alignas(64) TileConfig {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {kRows, kRows, kRows, kRows, kRows, kRows, kRows, kRows};
  };

  // Tiles 0 to 3: sums of low and high bytes with the first and the second block; 4, 5: weights; 6, 7: activations.
  [[gnu::always_inline]] static inline void multiply(const Weights& w, const Activations& first,
                                                     const Activations* second) {
    _tile_zero(0);
    _tile_zero(1);
    if (second == nullptr) {
      for (int k = 0; k < 4; ++k) {
        _tile_loadd(4, w.low[0] + 64 * k, 256);
        _tile_loadd(5, w.high[0] + 64 * k, 256);
        _tile_loadd(6, first.q[16 * k], 64);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbssd(1, 5, 6);
      }
    } else {
      _tile_zero(2);
      _tile_zero(3);
      for (int k = 0; k < 4; ++k) {
        _tile_loadd(4, w.low[0] + 64 * k, 256);
        _tile_loadd(6, first.q[16 * k], 64);
        _tile_dpbusd(0, 4, 6);
        _tile_loadd(7, second->q[16 * k], 64);
        _tile_dpbusd(2, 4, 7);
        _tile_loadd(5, w.high[0] + 64 * k, 256);
        _tile_dpbssd(1, 5, 6);
        _tile_dpbssd(3, 5, 7);
      }
    }
  }

  // y[column][row] += what a chunk adds: product_kernels.h.
  template <bool kHasMinimum>
  [[gnu::always_inline]] static inline void add_chunk(const Weights& w, const Activations& x, const Sums& sums,
                                                      float (*y)[16]) {
    const __m512 scale = V::load(x.scale);
#pragma GCC unroll 4
    for (int n = 0; n < kRows; ++n) {
      const __m512i total = V::iadd(V::iload(sums.low[n]), V::shl<8>(V::iload(sums.high[n])));
      __m512 sum = V::add(V::load(y[n]), V::mul(V::mul(scale, V::set1(w.d[n])), V::to_f(total)));
      if constexpr (kHasMinimum) {
        __m512i folded = V::izero();
#pragma GCC unroll 4
        for (int p = 0; p < 4; ++p) folded = V::dot16(folded, V::iload(x.sum32[p]), V::bcast(w.min[n] + 2 * p));
        sum = V::sub(sum, V::mul(V::mul(scale, V::set1(w.m[n])), V::to_f(folded)));
      }
      V::store(y[n], sum);
    }
  }

  template <class Format, TileKernel few>
  static void k_tile(const TileProduct& p) {
    if (p.packed == nullptr) return few(p);
    const std::byte* columns[kTileColumns];
    Product<V>::find_columns(p, columns);
    const std::int64_t chunks = p.k / kChunk;
    const std::int64_t blocks = (p.n_rows + kRows - 1) / kRows;
    const auto* x = reinterpret_cast<const Activations*>(p.packed);
    // y[block][column][row]; a tile has at most 128 rows.
    alignas(64) float y[8][kTileColumns][kRows];
    for (std::int64_t b = 0; b < blocks; ++b) {
      for (int n = 0; n < kTileColumns; ++n) V::store(y[b][n], V::zero());
    }
    const TileConfig config;
    _tile_loadconfig(&config);
    Weights w;
    Sums sums;
    for (std::int64_t c = 0; c < chunks; ++c) {
      Product<V>::ask_ahead(p, c, chunks);
      Format::unpack(columns, w);
      for (int n = 0; n < kTileColumns; ++n) columns[n] += Format::kBytes;
      for (std::int64_t b = 0; b < blocks; b += 2) {
        const Activations& first = x[b * chunks + c];
        const Activations* second = b + 1 < blocks ? &x[(b + 1) * chunks + c] : nullptr;
        multiply(w, first, second);
        _tile_stored(0, sums.low, 64);
        _tile_stored(1, sums.high, 64);
        add_chunk<Format::kHasMinimum>(w, first, sums, y[b]);
        if (second == nullptr) continue;
        _tile_stored(2, sums.low, 64);
        _tile_stored(3, sums.high, 64);
        add_chunk<Format::kHasMinimum>(w, *second, sums, y[b + 1]);
      }
    }
    _tile_release();
    for (std::int64_t b = 0; b < blocks; ++b) store_rows(p, b, y[b]);
  }

  // From [column][row] to the rows of p.out.
  static void store_rows(const TileProduct& p, std::int64_t block, const float (*y)[kRows]) {
    const std::byte* columns[kTileColumns];
    for (int n = 0; n < kTileColumns; ++n) columns[n] = reinterpret_cast<const std::byte*>(y[n]);
    for (int r = 0; r < kRows; r += 4) {
      V::I rows[4];
      V::load_columns4(columns, 4 * r, rows);
      for (int i = 0; i < 4; ++i) {
        const std::int64_t row = block * kRows + r + i;
        if (row < p.n_rows) V::istore(p.out + kTileColumns * row, rows[i]);
      }
    }
  }

  static constexpr ProductKernels table() {
    using P = Product<V>;
    // avx512's, which also has what is not a superblock of these three formats, and few rows.
    constexpr ProductKernels kVectors =
        FewRows::over<P::k_tile<P::kQ4K>, P::k_tile<P::kQ5K>, P::k_tile<P::kQ6K>>(P::table());
    constexpr auto at = [](DType type) { return static_cast<std::size_t>(type); };
    ProductKernels t = kVectors;
    t.tile[at(DType::q4_k)] = k_tile<Affine<FewRows::Q4K>, kVectors.tile[at(DType::q4_k)]>;
    t.tile[at(DType::q5_k)] = k_tile<Affine<FewRows::Q5K>, kVectors.tile[at(DType::q5_k)]>;
    t.tile[at(DType::q6_k)] = k_tile<Q6K, kVectors.tile[at(DType::q6_k)]>;
    t.pack = pack;
    t.packed_bytes = sizeof(Activations);
    t.pack_from = kMinRows;
    return t;
  }
};

}  // namespace conclave
