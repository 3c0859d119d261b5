// Products for a few rows: a tile's levels go from their blocks straight to the rows' sums, and nothing
// unpacked is stored. product.h unpacks to memory, which pays only when several turns of rows read it again.
//
// Zen 4, 2026-11-16, q4_k, ns for 16 columns of 256 weights (in brackets: through memory): 2 rows 98 (123), 4 rows 143
// (180), 6 rows 178 (209), 8 rows 236 (248). The stores are what it saves: 64 of them take 36 ns.
#pragma once

#include <type_traits>

#include "backends/cpu/kernels/product.h"

namespace conclave {

template <class V>
struct StreamedTile {
  using F = typename V::F;
  using I = typename V::I;
  using P = Product<V>;
  using U = Unpack<V>;
  using Ahead = typename P::Ahead;
  using Columns = const std::byte* const*;
  static constexpr int kMaxRows = 8;

  // The sums of two groups at a time, which share their bytes.
  template <int M>
  struct TwoGroups {
    I low[M];
    I high[M];

    [[gnu::always_inline]] inline void clear() {
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r) low[r] = high[r] = V::izero();
    }
    // 16 weights of each group, which meet the rows' values from x + at_low and x + at_high on.
    [[gnu::always_inline]] inline void add(const I* low_levels, const I* high_levels, const std::int8_t* const* x,
                                           int at_low, int at_high) {
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 8
        for (int r = 0; r < M; ++r) low[r] = V::dot(low[r], low_levels[j], V::bcast(x[r] + at_low + 4 * j));
#pragma GCC unroll 8
        for (int r = 0; r < M; ++r) high[r] = V::dot(high[r], high_levels[j], V::bcast(x[r] + at_high + 4 * j));
      }
    }
    [[gnu::always_inline]] inline void add_scaled_to(I* total, const std::int32_t* low_scale,
                                                     const std::int32_t* high_scale) const {
      const I scale = V::iload(low_scale);
      const I next_scale = V::iload(high_scale);
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r) {
        total[r] = V::iadd(total[r], V::iadd(V::imul(low[r], scale), V::imul(high[r], next_scale)));
      }
    }
  };

  struct Q4K {
    static constexpr const KFormat<V>& format = P::kQ4K;
    [[gnu::always_inline]] static inline void head(Columns w, WeightTile& t) { U::k_header(w, t); }
    // Bytes 16 * step of the levels.
    [[gnu::always_inline]] static inline void levels(Columns w, int step, WeightTile&, I* low, I* high) {
      U::nibbles(w, 16 + 16 * step, low, high);
    }
  };
  struct Q5K {
    static constexpr const KFormat<V>& format = P::kQ5K;
    // The fifth bits wait in the tile's levels, which nobody else needs: the next two groups' lowest.
    [[gnu::always_inline]] static inline void head(Columns w, WeightTile& t) {
      U::k_header(w, t);
      for (int h = 0; h < 2; ++h) {
        I bits[4];
        V::load_columns4(w, 16 + 16 * h, bits);
        for (int j = 0; j < 4; ++j) U::put(t, 4 * h + j, bits[j]);
      }
    }
    [[gnu::always_inline]] static inline void levels(Columns w, int step, WeightTile& t, I* low, I* high) {
      U::nibbles(w, 48 + 16 * step, low, high);
      for (int j = 0; j < 4; ++j) {
        const int at = 4 * (step % 2) + j;
        const I bits = V::iload(t.level[at]);
        low[j] = V::ior(low[j], V::template shl<4>(U::mask(bits, 0x01010101)));
        high[j] = V::ior(high[j], V::template shl<3>(U::mask(bits, 0x02020202)));
        U::put(t, at, V::template shr<2>(bits));
      }
    }
  };

  // What a chunk of q4_k or q5_k adds to `total`: groups 2c and 2c + 1 share 32 bytes.
  template <class Format, int M>
  [[gnu::always_inline]] static inline void add_groups(Columns w, WeightTile& t, const std::int8_t** x, Ahead& ahead,
                                                       I* total) {
    for (int c = 0; c < 4; ++c) {
      TwoGroups<M> sums;
      sums.clear();
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        ahead.ask();
        I low[4];
        I high[4];
        Format::levels(w, 2 * c + h, t, low, high);
        sums.add(low, high, x, 16 * h, 32 + 16 * h);
      }
      sums.add_scaled_to(total, t.scale[2 * c], t.scale[2 * c + 1]);
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r) x[r] += 64;
    }
  }

  struct Q6K {
    static constexpr const KFormat<V>& format = P::kQ6K;
    [[gnu::always_inline]] static inline void head(Columns w, WeightTile& t) { U::q6_k_header(w, t); }
  };
  // q6_k: of each half, groups g, g + 2, g + 4 and g + 6 share 16 bytes of upper bits.
  template <class Format, int M>
  requires std::is_same_v<Format, Q6K>
  [[gnu::always_inline]] static inline void add_groups(Columns w, WeightTile& t, const std::int8_t** x, Ahead& ahead,
                                                       I* total) {
    for (int half = 0; half < 2; ++half) {
      for (int g = 0; g < 2; ++g) {
        I bits[4];
        V::load_columns4(w, 128 + 32 * half + 16 * g, bits);
#pragma GCC unroll 2
        for (int part = 0; part < 2; ++part) {
          ahead.ask();
          I low[4];
          I high[4];
          U::nibbles(w, 64 * half + 32 * part + 16 * g, low, high);
          for (int j = 0; j < 4; ++j) {
            low[j] = V::ior(low[j], V::template shl<4>(U::mask(bits[j], 0x03030303)));
            high[j] = V::ior(high[j], U::mask(bits[j], 0x30303030));
            bits[j] = V::template shr<2>(bits[j]);
          }
          TwoGroups<M> sums;
          sums.clear();
          sums.add(low, high, x, 32 * part + 16 * g, 64 + 32 * part + 16 * g);
          const int group = 8 * half + 2 * part + g;
          sums.add_scaled_to(total, t.scale[group], t.scale[group + 4]);
        }
      }
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r) x[r] += 128;
    }
  }

  template <class Format, int M>
  static void rows(const TileProduct& p) {
    const std::byte* columns[kTileColumns];
    P::find_columns(p, columns);
    P::clear(p.out, p.n_rows);
    const std::int64_t chunks = p.k / kChunk;
    Ahead ahead(p, 8 * chunks);
    WeightTile tile;
    for (std::int64_t c = 0; c < chunks; ++c) {
      Format::head(columns, tile);
      const std::int8_t* x[M];
      I total[M];
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r) {
        x[r] = p.rows[r].q + c * kChunk;
        total[r] = V::izero();
      }
      add_groups<Format, M>(columns, tile, x, ahead, total);
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r)
        P::template add_chunk<Format::format>(tile, p.rows[r], c, total[r], p.out + kTileColumns * r);
      for (int n = 0; n < kTileColumns; ++n) columns[n] += Format::format.bytes;
    }
  }

  // Blocks of 32, whose sums go straight to y.
  template <const BlockFormat<V>& format, int M>
  static void block_rows(const TileProduct& p) {
    const std::byte* columns[kTileColumns];
    P::find_columns(p, columns);
    const std::int64_t blocks = p.k / 32;
    Ahead ahead(p, blocks);
    F y[M];
#pragma GCC unroll 8
    for (int r = 0; r < M; ++r) y[r] = V::zero();
    for (std::int64_t b = 0; b < blocks; ++b) {
      ahead.ask();
      typename U::Block block = format.unpack(columns, b * format.bytes);
      I sum[M];
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r) sum[r] = P::template first_sum<format>(p.rows[r].sum32[b]);
#pragma GCC unroll 8
      for (int j = 0; j < 8; ++j) {
#pragma GCC unroll 8
        for (int r = 0; r < M; ++r) sum[r] = V::dot(sum[r], block.level[j], V::bcast(p.rows[r].q + 32 * b + 4 * j));
      }
#pragma GCC unroll 8
      for (int r = 0; r < M; ++r) {
        const F scale = V::set1(p.rows[r].scale[b / 8]);
        y[r] = P::template add_block<format>(y[r], sum[r], scale, block.d, block.m, p.rows[r].sum32[b]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < M; ++r) V::store(p.out + kTileColumns * r, y[r]);
  }

  // Any number of rows: more than kMaxRows through memory.
  template <const BlockFormat<V>& format>
  static void block_tile(const TileProduct& p) {
    if (p.n_rows > kMaxRows) return P::template block_tile<format>(p);
    P::template rest_of_rows<kMaxRows>(
        0, p.n_rows, [&]<int M>(std::int64_t) __attribute__((always_inline)) { block_rows<format, M>(p); });
  }
  template <class Format>
  static void k_tile(const TileProduct& p) {
    if (p.n_rows > kMaxRows) return P::template k_tile<Format::format>(p);
    P::template rest_of_rows<kMaxRows>(
        0, p.n_rows, [&]<int M>(std::int64_t) __attribute__((always_inline)) { rows<Format, M>(p); });
  }

  static constexpr ProductKernels over(ProductKernels table) {
    const auto at = [&](DType type) -> TileKernel& { return table.tile[static_cast<std::size_t>(type)]; };
    at(DType::q4_0) = block_tile<P::kQ4_0>;
    at(DType::q4_1) = block_tile<P::kQ4_1>;
    at(DType::q5_0) = block_tile<P::kQ5_0>;
    at(DType::q5_1) = block_tile<P::kQ5_1>;
    at(DType::q8_0) = block_tile<P::kQ8_0>;
    at(DType::q4_k) = k_tile<Q4K>;
    at(DType::q5_k) = k_tile<Q5K>;
    at(DType::q6_k) = k_tile<Q6K>;
    at(DType::iq4_nl) = block_tile<P::kIq4Nl>;
    at(DType::mxfp4) = block_tile<P::kMxfp4>;
    return table;
  }
};

}  // namespace conclave
