// Superblock products on AMX tiles: 16 columns of weights, with each level already multiplied by its group's scale,
// times 16 or 32 rows of activations. A scaled level has up to 14 bits and a sign: an unsigned low byte and a signed high
// byte, each a tile product over the whole superblock. Both sums are exact integers, so the results are those of every
// other row.
//
// Emerald Rapids, 2026-11-15, 16 threads, 32 rows, a chunk: 734 ns; unpacking alone 190 to 270, tile products 240, sums and
// minimums 130. Lost: tile products per group of 32 with the scales applied to their sums (2.5 times slower on 128 rows),
// two blocks of rows at a time with all eight tiles in use (325 ns), one tile of columns after the other through all
// chunks (the rows then come from the L2).
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

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
  // Sums over a chunk.
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

  // The headers of four columns of q4_k or q5_k, from column n on; returns their scales.
  [[gnu::always_inline]] static inline __m512i affine_headers(const std::byte* const* columns, int n, Weights& out) {
    const __m512i head = FewRows::load_headers(columns + n, 0);
    const __m512i scales = FewRows::decode_scales(head);
    const __m256 factors = _mm256_cvtph_ps(FewRows::firsts(head));
    const __m128 low = _mm256_castps256_ps128(factors);
    const __m128 high = _mm256_extractf128_ps(factors, 1);
    _mm_store_ps(out.d + n, _mm_shuffle_ps(low, high, 0x88));
    _mm_store_ps(out.m + n, _mm_shuffle_ps(low, high, 0xDD));
    V::istore(out.min[n], _mm512_unpackhi_epi8(scales, _mm512_setzero_si512()));
    return scales;
  }

  // A nibble times a scale by table: 16 low and 16 high bytes for each of 64 scales.
  struct Q4K {
    static constexpr std::int64_t kBytes = FewRows::Q4K::kBytes;
    static constexpr bool kHasMinimum = true;
    struct alignas(32) Multiples {
      std::uint8_t low[16];
      std::uint8_t high[16];
    };
    static constexpr std::array<Multiples, 64> kMultiples = [] {
      std::array<Multiples, 64> table{};
      for (int scale = 0; scale < 64; ++scale) {
        for (int level = 0; level < 16; ++level) {
          table[scale].low[level] = static_cast<std::uint8_t>(scale * level % 256);
          table[scale].high[level] = static_cast<std::uint8_t>(scale * level / 256);
        }
      }
      return table;
    }();

    [[gnu::always_inline]] static inline void group(__m256i level, const Multiples& of, int g, std::uint8_t* low,
                                                    std::int8_t* high) {
      const __m256i low_of = _mm256_broadcastsi128_si256(FewRows::load128(of.low));
      const __m256i high_of = _mm256_broadcastsi128_si256(FewRows::load128(of.high));
      _mm256_store_si256(reinterpret_cast<__m256i*>(low + 32 * g), _mm256_shuffle_epi8(low_of, level));
      _mm256_store_si256(reinterpret_cast<__m256i*>(high + 32 * g), _mm256_shuffle_epi8(high_of, level));
    }
    [[gnu::always_inline]] static inline void unpack_four(const std::byte* const* columns, int n, Weights& out) {
      const __m256i nibble = _mm256_set1_epi8(0x0F);
      alignas(64) std::uint8_t scale[4][16];
      V::istore(scale, affine_headers(columns, n, out));
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
        for (int pair = 0; pair < 4; ++pair) {
          const __m256i both = FewRows::load256(columns[n + i] + 16 + 32 * pair);
          const __m256i even = _mm256_and_si256(both, nibble);
          const __m256i odd = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
          group(even, kMultiples[scale[i][2 * pair]], 2 * pair, out.low[n + i], out.high[n + i]);
          group(odd, kMultiples[scale[i][2 * pair + 1]], 2 * pair + 1, out.low[n + i], out.high[n + i]);
        }
      }
    }
  };

  // Vectors of levels hold groups (0, 2), (1, 3), (4, 6), (5, 7).
  struct Q5K {
    static constexpr std::int64_t kBytes = FewRows::Q5K::kBytes;
    static constexpr bool kHasMinimum = true;
    template <int n>
    [[gnu::always_inline]] static inline void column(const std::byte* w, __m512i scales, int at, Weights& out) {
      __m512i level[4];
      FewRows::Q5K::unpack(w, level);
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
    [[gnu::always_inline]] static inline void unpack_four(const std::byte* const* columns, int n, Weights& out) {
      const __m512i scales = affine_headers(columns, n, out);
      column<0>(columns[n], scales, n, out);
      column<1>(columns[n + 1], scales, n + 1, out);
      column<2>(columns[n + 2], scales, n + 2, out);
      column<3>(columns[n + 3], scales, n + 3, out);
    }
  };

  struct Q6K {
    static constexpr std::int64_t kBytes = FewRows::Q6K::kBytes;
    static constexpr bool kHasMinimum = false;
    [[gnu::always_inline]] static inline void unpack_four(const std::byte* const* columns, int first, Weights& out) {
      const __m512i offset = _mm512_set1_epi16(32);
      for (int n = first; n < first + 4; ++n) {
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

  // One step of a block's product: 64 of the chunk's weights. Tiles 0, 1: the sums of low and high bytes; 4: weights; 5:
  // activations. No more tiles than these hold anything: where two threads share a core there are too few registers
  // behind the tiles, and with all eight in use a product takes three times as long.
  [[gnu::always_inline]] static inline void multiply(const Weights& w, const Activations& x, int step) {
    asm volatile("" ::: "memory");  // a tile load does not tell the compiler that it reads memory
    _tile_loadd(5, x.q[16 * step], 64);
    _tile_loadd(4, w.low[0] + 64 * step, 256);
    _tile_dpbusd(0, 4, 5);
    _tile_loadd(4, w.high[0] + 64 * step, 256);
    _tile_dpbssd(1, 4, 5);
  }

  // y[column][row] += what a chunk adds, for four columns: product_kernels.h.
  template <bool kHasMinimum>
  [[gnu::always_inline]] static inline void add_four(const Weights& w, const Activations& x, const Sums& sums,
                                                     int first, float (*y)[16]) {
    const __m512 scale = V::load(x.scale);
#pragma GCC unroll 4
    for (int n = first; n < first + 4; ++n) {
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

  // Chunk by chunk, so that the rows of a chunk stay in the L1 while tile after tile of weights meets them; the sums so
  // far, a quarter of the rows' bytes, come from the L2.
  //
  // While the tile unit multiplies a tile of weights with a block of rows, the vector units finish the block before it
  // and unpack the tile after it, a quarter of each per step.
  template <class Format>
  static void strip(const StripProduct& p) {
    const std::int64_t chunks = p.k / kChunk;
    const std::int64_t blocks = (p.n_rows + kRows - 1) / kRows;
    const std::int64_t tiles = (p.n_columns + kTileColumns - 1) / kTileColumns;
    const std::int64_t n_turns = chunks * tiles;
    const auto* x = reinterpret_cast<const Activations*>(p.packed);
    auto* y = reinterpret_cast<float(*)[kTileColumns][kRows]>(p.out);  // [tile * blocks + block][column][row]
    std::memset(p.out, 0, static_cast<std::size_t>(tiles * blocks) * sizeof(y[0]));
    if (n_turns == 0) return;  // k = 0: below, the first turn is begun before turns are counted
    const TileConfig config;
    _tile_loadconfig(&config);

    Weights weights[2];
    Sums sums[2];
    // What the tile unit finished last.
    struct {
      const Weights* w;
      const Activations* x;
      const Sums* sums;
      float (*y)[kRows];
    } done{};
    const std::byte* columns[kTileColumns];
    Turn turn;
    find_columns<Format>(p, turn, columns);
    for (int n = 0; n < kTileColumns; n += 4) Format::unpack_four(columns, n, weights[0]);
    for (std::int64_t i = 0; i < n_turns; ++i) {
      ask_ahead(p, i, n_turns);
      const Weights& w = weights[i % 2];
      Weights& next_w = weights[(i + 1) % 2];
      const Turn now = turn;
      if (++turn.tile == tiles) turn = {.chunk = turn.chunk + 1};
      if (i + 1 < n_turns) find_columns<Format>(p, turn, columns);
      int quarter = 0;
      for (std::int64_t b = 0; b < blocks; ++b) {
        const Activations& rows = x[b * chunks + now.chunk];
        Sums& to = sums[(i * blocks + b) % 2];
        _tile_zero(0);
        _tile_zero(1);
        for (int step = 0; step < 4; ++step) {
          multiply(w, rows, step);
          if (done.w != nullptr) add_four<Format::kHasMinimum>(*done.w, *done.x, *done.sums, 4 * step, done.y);
          // After the four columns of that tile before, whose place they take, are done with.
          if (4 * b + step == quarter * blocks) Format::unpack_four(columns, 4 * quarter++, next_w);
        }
        _tile_stored(0, to.low, 64);
        _tile_stored(1, to.high, 64);
        done = {&w, &rows, &to, y[now.tile * blocks + b]};
      }
    }
    _tile_release();
    for (int n = 0; n < kTileColumns; n += 4) add_four<Format::kHasMinimum>(*done.w, *done.x, *done.sums, n, done.y);
    for (std::int64_t i = 0; i < tiles * blocks; ++i) transpose(y[i]);
  }

  // Which chunk of which tile of columns.
  struct Turn {
    std::int64_t chunk = 0;
    std::int64_t tile = 0;
  };
  template <class Format>
  [[gnu::always_inline]] static inline void find_columns(const StripProduct& p, Turn turn, const std::byte** columns) {
    for (int n = 0; n < kTileColumns; ++n) {
      const std::int64_t column = std::min(turn.tile * kTileColumns + n, p.n_columns - 1);
      columns[n] = p.weights + column * p.column_stride + turn.chunk * Format::kBytes;
    }
  }

  [[gnu::always_inline]] static inline void ask_ahead(const StripProduct& p, std::int64_t step, std::int64_t steps) {
    const std::int64_t end = p.next_bytes * (step + 1) / steps;
    for (std::int64_t at = p.next_bytes * step / steps / 64 * 64; at < end; at += 64) V::prefetch(p.next + at);
  }

  // From [column][row] to [row][column], in place.
  static void transpose(float (*y)[kRows]) {
    const std::byte* columns[kTileColumns];
    for (int n = 0; n < kTileColumns; ++n) columns[n] = reinterpret_cast<const std::byte*>(y[n]);
    V::I rows[kRows];
    for (int r = 0; r < kRows; r += 4) V::load_columns4(columns, 4 * r, rows + r);
    for (int r = 0; r < kRows; ++r) V::istore(y[r], rows[r]);
  }

  // avx512's, and strips of superblocks.
  static constexpr ProductKernels table() {
    using P = Product<V>;
    constexpr auto at = [](DType type) { return static_cast<std::size_t>(type); };
    ProductKernels t = FewRows::over<P::k_tile<P::kQ4K>, P::k_tile<P::kQ5K>, P::k_tile<P::kQ6K>>(P::table());
    t.strip[at(DType::q4_k)] = strip<Q4K>;
    t.strip[at(DType::q5_k)] = strip<Q5K>;
    t.strip[at(DType::q6_k)] = strip<Q6K>;
    t.pack = pack;
    t.packed_bytes = sizeof(Activations);
    t.pack_from = kMinRows;
    return t;
  }
};

}  // namespace conclave
