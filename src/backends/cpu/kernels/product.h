// The product kernels over any vector type: product_kernels.h says what they compute.
//
// A tile is unpacked once per chunk (weight_tile.h) and used for all rows, a few at a time, their sums in registers.
// Bound with many rows: byte dot products. With few: weight bytes, which are asked for a tile ahead.
#pragma once

#include "backends/cpu/kernels/weight_tile.h"

namespace conclave {

// Superblock formats: 256 weights, kGroups integer scales. Affine ones have minimums; the others an offset.
template <class V>
struct KFormat {
  void (*unpack)(const std::byte* const* columns, WeightTile& tile);
  std::int64_t bytes;
  int groups;
  int largest;  // level
  bool affine;
  bool has_sign;  // levels are signed, with V::kBias added
  int offset;
};
// Blocks of 32 with a scale each, and where `affine` a minimum that is added.
template <class V>
struct BlockFormat {
  typename Unpack<V>::Block (*unpack)(const std::byte* const* columns, std::int64_t at);
  std::int64_t bytes;
  int largest;
  bool affine;
  bool has_sign;
  int offset;
};

template <class V>
struct Product {
  using F = typename V::F;
  using I = typename V::I;

  static constexpr KFormat<V> kQ2K{Unpack<V>::q2_k, 84, 16, 3, true, false, 0};
  static constexpr KFormat<V> kQ3K{Unpack<V>::q3_k, 110, 16, 7, false, false, 4};
  static constexpr KFormat<V> kQ4K{Unpack<V>::q4_k, 144, 8, 15, true, false, 0};
  static constexpr KFormat<V> kQ5K{Unpack<V>::q5_k, 176, 8, 31, true, false, 0};
  static constexpr KFormat<V> kQ6K{Unpack<V>::q6_k, 210, 16, 63, false, false, 32};
  static constexpr KFormat<V> kIq4Xs{Unpack<V>::iq4_xs, 136, 8, 128, false, true, V::kBias};
  static constexpr BlockFormat<V> kQ4_0{Unpack<V>::q4_0, 18, 15, false, false, 8};
  static constexpr BlockFormat<V> kQ4_1{Unpack<V>::q4_1, 20, 15, true, false, 0};
  static constexpr BlockFormat<V> kQ5_0{Unpack<V>::q5_0, 22, 31, false, false, 16};
  static constexpr BlockFormat<V> kQ5_1{Unpack<V>::q5_1, 24, 31, true, false, 0};
  static constexpr BlockFormat<V> kQ8_0{Unpack<V>::q8_0, 34, 128, false, true, V::kBias};
  static constexpr BlockFormat<V> kIq4Nl{Unpack<V>::iq4_nl, 18, 128, false, true, V::kBias};
  static constexpr BlockFormat<V> kMxfp4{Unpack<V>::mxfp4, 17, 12, false, true, V::kBias};

  // Sums of M rows with T tiles.
  template <int M, int T>
  using Sums = I[M][T];

  // sum[r][t] += the dot products of kVectors vectors of tile t's levels with the 4 * kVectors values at x[r]. Where the
  // vector type has faster sums in 16 bits, as many steps as fit are taken there.
  template <int kVectors, int kLargest, bool kSigned, int M, int T>
  [[gnu::always_inline]] static inline void add_dots(const WeightTile* tiles, int first_vector,
                                                     const std::int8_t* const* x, Sums<M, T>& sum) {
    constexpr int kSteps = V::kNarrow && !kSigned && T == 1 ? 32767 / (2 * 127 * kLargest) : 0;
    if constexpr (kSteps > 1) {
      constexpr int kRun = kSteps < kVectors ? (kSteps >= 4 ? 4 : 2) : kVectors;
#pragma GCC unroll 8
      for (int first = 0; first < kVectors; first += kRun) {
        typename V::N narrow[M];
        for (int r = 0; r < M; ++r) narrow[r] = V::narrow_zero();
#pragma GCC unroll 1  // or g++ loads all of them at once, and spills
        for (int j = first; j < first + kRun; ++j) {
          const I w = V::iload(tiles->level[first_vector + j]);
#pragma GCC unroll 16
          for (int r = 0; r < M; ++r) narrow[r] = V::narrow_dot(narrow[r], w, V::bcast(x[r] + 4 * j));
        }
        for (int r = 0; r < M; ++r) sum[r][0] = V::iadd(sum[r][0], V::widen(narrow[r]));
      }
    } else {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        I w[T];
#pragma GCC unroll 2
        for (int t = 0; t < T; ++t) w[t] = V::iload(tiles[t].level[first_vector + j]);
#pragma GCC unroll 16
        for (int r = 0; r < M; ++r) {
          const I v = V::bcast(x[r] + 4 * j);
#pragma GCC unroll 2
          for (int t = 0; t < T; ++t) {
            sum[r][t] = kSigned ? V::dot_signed(sum[r][t], w[t], v) : V::dot(sum[r][t], w[t], v);
          }
        }
      }
    }
  }

  // y += what a chunk adds, whose scaled sums over all groups are `total`.
  template <const KFormat<V>& format>
  [[gnu::always_inline]] static inline void add_chunk(const WeightTile& tile, const ProductRow& row, std::int64_t chunk,
                                                      I total, float* out) {
    const F scale = V::set1(row.scale[chunk]);
    const F d = V::mul(scale, V::load(tile.d[0]));
    F y = V::load(out);
    if constexpr (format.affine || format.offset != 0) {
      const std::int16_t* sums = format.groups == 8 ? row.sum32 + chunk * 8 : row.sum16 + chunk * 16;
      I folded = V::izero();
#pragma GCC unroll 8
      for (int p = 0; p < format.groups / 2; ++p) {
        folded = V::dot16(folded, V::iload(tile.fold[p]), V::bcast(sums + 2 * p));
      }
      if constexpr (format.affine) {
        y = V::add(y, V::mul(d, V::to_f(total)));
        y = V::sub(y, V::mul(V::mul(scale, V::load(tile.m[0])), V::to_f(folded)));
      } else {
        const I exact = V::isub(total, V::imul(folded, V::iset1(format.offset)));
        y = V::add(y, V::mul(d, V::to_f(exact)));
      }
    } else {
      y = V::add(y, V::mul(d, V::to_f(total)));
    }
    V::store(out, y);
  }

  // M rows of one chunk with T tiles: out[r] += what the chunk adds, tile t's at out + t * tile_stride.
  template <const KFormat<V>& format, int M, int T = 1>
  static void k_rows(const WeightTile* tiles, const ProductRow* rows, std::int64_t chunk, float* out,
                     std::int64_t tile_stride = 0) {
    constexpr int kPerGroup = 64 / format.groups;
    const std::int8_t* x[M];
    Sums<M, T> total;
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
      x[r] = rows[r].q + chunk * kChunk;
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) total[r][t] = V::izero();
    }
    for (int g = 0; g < format.groups; ++g) {
      Sums<M, T> sum;
#pragma GCC unroll 16
      for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
        for (int t = 0; t < T; ++t) sum[r][t] = V::izero();
      }
      add_dots<kPerGroup, format.largest, format.has_sign, M, T>(tiles, g * kPerGroup, x, sum);
      for (int r = 0; r < M; ++r) x[r] += 4 * kPerGroup;
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) {
        const I scale = V::iload(tiles[t].scale[g]);
#pragma GCC unroll 16
        for (int r = 0; r < M; ++r) total[r][t] = V::iadd(total[r][t], V::imul(sum[r][t], scale));
      }
    }
#pragma GCC unroll 2
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 16
      for (int r = 0; r < M; ++r) {
        add_chunk<format>(tiles[t], rows[r], chunk, total[r][t], out + t * tile_stride + kTileColumns * r);
      }
    }
  }

  // Where the sum over a block starts, and y with what that sum adds. `total`: the sum of the row's values there.
  template <const BlockFormat<V>& format>
  [[gnu::always_inline]] static inline I first_sum(std::int16_t total) {
    return format.offset == 0 ? V::izero() : V::iset1(-format.offset * total);
  }
  template <const BlockFormat<V>& format>
  [[gnu::always_inline]] static inline F add_block(F y, I sum, F scale, F d, F m, std::int16_t total) {
    y = V::add(y, V::mul(V::mul(scale, d), V::to_f(sum)));
    if constexpr (format.affine) y = V::add(y, V::mul(V::mul(scale, m), V::set1(static_cast<float>(total))));
    return y;
  }

  template <const BlockFormat<V>& format, int M>
  static void block_rows(const WeightTile& tile, int blocks, const ProductRow* rows, std::int64_t chunk, float* out) {
    const std::int8_t* x[M];
    F y[M];
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
      x[r] = rows[r].q + chunk * kChunk;
      y[r] = V::load(out + kTileColumns * r);
    }
    for (int b = 0; b < blocks; ++b) {
      Sums<M, 1> sum;
#pragma GCC unroll 16
      for (int r = 0; r < M; ++r) sum[r][0] = first_sum<format>(rows[r].sum32[chunk * 8 + b]);
      add_dots<8, format.largest, format.has_sign, M, 1>(&tile, 8 * b, x, sum);
#pragma GCC unroll 16
      for (int r = 0; r < M; ++r) x[r] += 32;
      const F d = V::load(tile.d[b]);
#pragma GCC unroll 16
      for (int r = 0; r < M; ++r) {
        const F scale = V::set1(rows[r].scale[chunk]);
        y[r] = add_block<format>(y[r], sum[r][0], scale, d, V::load(tile.m[b]), rows[r].sum32[chunk * 8 + b]);
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) V::store(out + kTileColumns * r, y[r]);
  }

  // Calls visit<M>(first row) for all rows, V::kMaxRows at a time, then the rest. One to three rows alone would wait for
  // their own sums: they share with the last full turn.
  template <int M, class Visit>
  [[gnu::always_inline]] static inline void rest_of_rows(std::int64_t first, std::int64_t left, Visit&& visit) {
    if constexpr (M > 0) {
      if (left == M) {
        visit.template operator()<M>(first);
      } else {
        rest_of_rows<M - 1>(first, left, visit);
      }
    }
  }
  template <class Visit>
  [[gnu::always_inline]] static inline void for_rows(std::int64_t n_rows, Visit&& visit) {
    std::int64_t r = 0;
    for (; r + V::kMaxRows <= n_rows; r += V::kMaxRows) {
      if constexpr (V::kMaxRows > 6) {
        const std::int64_t left = n_rows - r - V::kMaxRows;
        if (left > 0 && left < 4) {
          visit.template operator()<V::kMaxRows - 3>(r);
          r += V::kMaxRows - 3;
          break;
        }
      }
      visit.template operator()<V::kMaxRows>(r);
    }
    rest_of_rows<V::kMaxRows - 1>(r, n_rows - r, visit);
  }

  // Where the columns start; those past n_columns are copies of the last.
  template <int kColumns = kTileColumns>
  [[gnu::always_inline]] static inline void find_columns(const auto& p, const std::byte** columns) {
    for (int n = 0; n < kColumns; ++n) {
      columns[n] = p.weights + (n < p.n_columns ? n : p.n_columns - 1) * p.column_stride;
    }
  }
  [[gnu::always_inline]] static inline void clear(float* out, std::int64_t n_rows) {
    for (std::int64_t r = 0; r < n_rows; ++r) V::store(out + kTileColumns * r, V::zero());
  }
  // Asks for what p.next says, in so many equal parts, a few lines at a time. In bursts it holds the product up: with all
  // of a chunk's lines at once, 32 rows take 5% longer.
  class Ahead {
   public:
    Ahead(const auto& p, std::int64_t times)
        : at_(p.next), due_(p.next), end_(p.next + p.next_bytes), step_(p.next_bytes / (times > 0 ? times : 1) + 1) {}
    [[gnu::always_inline]] inline void ask() {
      due_ = end_ - due_ < step_ ? end_ : due_ + step_;
      for (; at_ < due_; at_ += 64) V::prefetch(at_);
    }

   private:
    const std::byte* at_;
    const std::byte* due_;
    const std::byte* end_;
    std::int64_t step_;
  };
  // How often for_rows() visits.
  [[gnu::always_inline]] static inline std::int64_t turns(std::int64_t n_rows) {
    return (n_rows + V::kMaxRows - 1) / V::kMaxRows;
  }

  template <const KFormat<V>& format>
  static void k_tile(const TileProduct& p) {
    const std::byte* columns[kTileColumns];
    find_columns(p, columns);
    clear(p.out, p.n_rows);
    const std::int64_t chunks = p.k / kChunk;
    Ahead ahead(p, chunks * turns(p.n_rows));
    WeightTile tile;
    for (std::int64_t c = 0; c < chunks; ++c) {
      format.unpack(columns, tile);
      for (int n = 0; n < kTileColumns; ++n) columns[n] += format.bytes;
      for_rows(
          p.n_rows, [&]<int M>(std::int64_t r) __attribute__((always_inline)) {
            ahead.ask();
            k_rows<format, M>(&tile, p.rows + r, c, p.out + kTileColumns * r);
          });
    }
  }

  // Two tiles side by side, for vector types whose registers hold the sums of six rows with both: each value of a row is
  // loaded for both, and loads are what a tile alone waits for. Turns have rows as equal as can be.
  // Zen 5, 2026-11-18, q4_k, ns for a row and tile of 256 weights: 32 rows 11.6 instead of 12.6, 64 rows 10.8 instead of
  // 11.7, of which 10.0 are 80 instructions on two pipes. Lost: one tile with 10 to 14 rows a turn (at most 3% faster).
  static constexpr int kStripTiles = 2;
  static constexpr int kStripRows = 6;
  template <const KFormat<V>& format>
  static void k_strip(const StripProduct& p) {
    if (p.n_columns <= kTileColumns) {
      return k_tile<format>({.weights = p.weights,
                             .column_stride = p.column_stride,
                             .n_columns = static_cast<int>(p.n_columns),
                             .k = p.k,
                             .rows = p.rows,
                             .n_rows = p.n_rows,
                             .out = p.out,
                             .next = p.next,
                             .next_bytes = p.next_bytes});
    }
    const std::byte* columns[kStripTiles * kTileColumns];
    find_columns<kStripTiles * kTileColumns>(p, columns);
    const std::int64_t tile_stride = (p.n_rows + 15) / 16 * 16 * kTileColumns;
    for (int t = 0; t < kStripTiles; ++t) clear(p.out + t * tile_stride, p.n_rows);
    const std::int64_t chunks = p.k / kChunk;
    const std::int64_t turns = (p.n_rows + kStripRows - 1) / kStripRows;
    Ahead ahead(p, chunks * turns);
    WeightTile tiles[kStripTiles];
    for (std::int64_t c = 0; c < chunks; ++c) {
      for (int t = 0; t < kStripTiles; ++t) format.unpack(columns + t * kTileColumns, tiles[t]);
      for (const std::byte*& column : columns) column += format.bytes;
      std::int64_t first = 0;
      for (std::int64_t turn = 0; turn < turns; ++turn) {
        const std::int64_t end = p.n_rows * (turn + 1) / turns;
        ahead.ask();
        rest_of_rows<kStripRows>(
            first, end - first, [&]<int M>(std::int64_t r) __attribute__((always_inline)) {
              k_rows<format, M, kStripTiles>(tiles, p.rows + r, c, p.out + kTileColumns * r, tile_stride);
            });
        first = end;
      }
    }
  }
  // Of all superblock formats. From more rows on than streamed_tile.h takes.
  static constexpr StripKernels strips() {
    StripKernels t{.strip = {}, .tiles = kStripTiles, .from_rows = 9, .pack = nullptr, .packed_bytes = 0};
    const auto at = [&](DType type) -> StripKernel& { return t.strip[static_cast<std::size_t>(type)]; };
    at(DType::q2_k) = k_strip<kQ2K>;
    at(DType::q3_k) = k_strip<kQ3K>;
    at(DType::q4_k) = k_strip<kQ4K>;
    at(DType::q5_k) = k_strip<kQ5K>;
    at(DType::q6_k) = k_strip<kQ6K>;
    at(DType::iq4_xs) = k_strip<kIq4Xs>;
    return t;
  }

  template <const BlockFormat<V>& format>
  static void put_block(const std::byte* const* columns, std::int64_t at, int b, WeightTile& tile) {
    typename Unpack<V>::Block block = format.unpack(columns, at);
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) Unpack<V>::put(tile, 8 * b + j, block.level[j]);
    V::store(tile.d[b], block.d);
    if constexpr (format.affine) V::store(tile.m[b], block.m);
  }

  template <const BlockFormat<V>& format>
  static void block_tile(const TileProduct& p) {
    const std::byte* columns[kTileColumns];
    find_columns(p, columns);
    clear(p.out, p.n_rows);
    const std::int64_t blocks = p.k / 32;
    const std::int64_t chunks = (blocks + 7) / 8;
    Ahead ahead(p, chunks * turns(p.n_rows));
    WeightTile tile;
    for (std::int64_t c = 0; c < chunks; ++c) {
      const int here = static_cast<int>(blocks - 8 * c < 8 ? blocks - 8 * c : 8);
      for (int b = 0; b < here; ++b) put_block<format>(columns, (8 * c + b) * format.bytes, b, tile);
      for_rows(
          p.n_rows, [&]<int M>(std::int64_t r) __attribute__((always_inline)) {
            ahead.ask();
            block_rows<format, M>(tile, here, p.rows + r, c, p.out + kTileColumns * r);
          });
    }
  }

  // Plain weights.
  struct F32 {
    using Stored = float;
    [[gnu::always_inline]] static inline F load(const float* p) { return V::load(p); }
  };
  struct F16 {
    using Stored = std::uint16_t;
    [[gnu::always_inline]] static inline F load(const std::uint16_t* p) { return V::load_f16(p); }
  };
  struct Bf16 {
    using Stored = std::uint16_t;
    [[gnu::always_inline]] static inline F load(const std::uint16_t* p) { return V::load_bf16(p); }
  };
  // n of 16 elements, the others 0.
  template <class T>
  [[gnu::always_inline]] static inline F load_some(const typename T::Stored* p, std::int64_t n) {
    if (n <= 0) return V::zero();
    if (n >= 16) return T::load(p);
    typename T::Stored some[16] = {};
    for (std::int64_t i = 0; i < n; ++i) some[i] = p[i];
    return T::load(some);
  }

  // Some columns at a time: each number of a row is loaded once for all of them.
  static constexpr int kPlainColumns = V::kMaxRows > 6 ? 2 : 1;
  static constexpr int kPlainRows = V::kMaxRows > 6 ? 6 : V::kMaxRows;

  template <class T, int M>
  static void plain_rows(const typename T::Stored* const* w, std::int64_t k, const ProductRow* rows, float* out) {
    F even[M][kPlainColumns];
    F odd[M][kPlainColumns];
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
      for (int n = 0; n < kPlainColumns; ++n) even[r][n] = odd[r][n] = V::zero();
    }
    const auto add = [&](const auto& of_weights, const auto& of_row) __attribute__((always_inline)) {
      F weights[kPlainColumns][2];
#pragma GCC unroll 2
      for (int n = 0; n < kPlainColumns; ++n) {
        weights[n][0] = of_weights(w[n], 0);
        weights[n][1] = of_weights(w[n], 16);
      }
#pragma GCC unroll 16
      for (int r = 0; r < M; ++r) {
        const F x[2] = {of_row(rows[r].x, 0), of_row(rows[r].x, 16)};
#pragma GCC unroll 2
        for (int n = 0; n < kPlainColumns; ++n) {
          even[r][n] = V::fma(x[0], weights[n][0], even[r][n]);
          odd[r][n] = V::fma(x[1], weights[n][1], odd[r][n]);
        }
      }
    };
    std::int64_t i = 0;
    for (; i + 32 <= k; i += 32) {
      add(
          [i](const auto* from, int at) __attribute__((always_inline)) { return T::load(from + i + at); },
          [i](const auto* from, int at) __attribute__((always_inline)) { return V::load(from + i + at); });
    }
    if (i < k) {
      add([i, k](const auto* from, int at) { return load_some<T>(from + i + at, k - i - at); },
          [i, k](const auto* from, int at) { return load_some<F32>(from + i + at, k - i - at); });
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; ++r) {
#pragma GCC unroll 2
      for (int n = 0; n < kPlainColumns; ++n) out[kTileColumns * r + n] = V::sum(V::add(even[r][n], odd[r][n]));
    }
  }

  template <class T>
  static void plain_tile(const TileProduct& p) {
    const auto column = [&](int n) {
      return reinterpret_cast<const typename T::Stored*>(p.weights + std::min(n, p.n_columns - 1) * p.column_stride);
    };
    const auto groups = [](std::int64_t n, std::int64_t of) { return (n + of - 1) / of; };
    Ahead ahead(p, groups(p.n_columns, kPlainColumns) * groups(p.n_rows, kPlainRows));
    for (int n = 0; n < p.n_columns; n += kPlainColumns) {
      const typename T::Stored* w[kPlainColumns];
      for (int i = 0; i < kPlainColumns; ++i) w[i] = column(n + i);
      const auto visit = [&]<int M>(std::int64_t r) __attribute__((always_inline)) {
        ahead.ask();
        plain_rows<T, M>(w, p.k, p.rows + r, p.out + kTileColumns * r + n);
      };
      std::int64_t r = 0;
      for (; r + kPlainRows <= p.n_rows; r += kPlainRows) visit.template operator()<kPlainRows>(r);
      rest_of_rows<kPlainRows - 1>(r, p.n_rows - r, visit);
    }
  }

  static bool quantize(const float* x, std::int64_t k, std::int8_t* q, float* scale, std::int16_t* sum16,
                       std::int16_t* sum32) {
    bool usable = true;
    for (std::int64_t c = 0; c * kChunk < k; ++c, x += kChunk, q += kChunk, sum16 += 16, sum32 += 8) {
      const std::int64_t n = k - c * kChunk < kChunk ? k - c * kChunk : kChunk;
      F v[16];
      F top = V::zero();
      F nothing = V::zero();  // NaN as soon as a value is not finite
      for (int i = 0; i < 16; ++i) {
        v[i] = load_some<F32>(x + 16 * i, n - 16 * i);
        top = V::max(V::abs(v[i]), top);
        nothing = V::add(nothing, V::sub(v[i], v[i]));
      }
      const float largest = V::largest(top);
      const bool finite = !V::any(V::is_nan(nothing));
      const bool normal = largest == 0.0F || largest >= 0x1p-100F;
      usable = usable && finite && normal;
      const float step = finite && normal ? largest / 127.0F : 0.0F;
      const F inverse = V::set1(step > 0.0F ? 1.0F / step : 0.0F);
      scale[c] = step;
      std::int8_t bytes[kChunk];
      for (int i = 0; i < 16; ++i) {
        V::narrow(bytes + 16 * i, V::to_i(finite ? V::mul(v[i], inverse) : V::zero()));
      }
      // Sums of four through a product with ones, then of 16, four of them each, and 32.
      std::int32_t four[64];
      for (int i = 0; i < 4; ++i) {
        const I packed = V::iload(bytes + 64 * i);
        V::istore(q + 64 * i, packed);
        V::istore(four + 16 * i, V::dot(V::izero(), V::iset1(0x01010101), packed));
      }
      const std::byte* of_sixteen[16];
      for (int i = 0; i < 16; ++i) of_sixteen[i] = reinterpret_cast<const std::byte*>(four + 4 * i);
      I parts[4];
      V::load_columns4(of_sixteen, 0, parts);
      std::int32_t sixteen[16];
      V::istore(sixteen, V::iadd(V::iadd(parts[0], parts[1]), V::iadd(parts[2], parts[3])));
      for (int i = 0; i < 16; ++i) sum16[i] = static_cast<std::int16_t>(sixteen[i]);
      for (int i = 0; i < 8; ++i) sum32[i] = static_cast<std::int16_t>(sixteen[2 * i] + sixteen[2 * i + 1]);
    }
    return usable;
  }

  static double dot_peak(std::int64_t rounds, std::int32_t* sink) {
    constexpr int kChains = V::kMaxRows >= 8 ? 16 : 2 * V::kMaxRows;
    I chain[kChains];
    for (int i = 0; i < kChains; ++i) chain[i] = V::iset1(i);
    const I w = V::bcast(sink);
    const I x = V::bcast(sink + 1);
    for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 16
      for (int i = 0; i < kChains; ++i) chain[i] = V::dot(chain[i], w, x);
    }
    for (int i = 1; i < kChains; ++i) chain[0] = V::iadd(chain[0], chain[i]);
    std::int32_t lanes[16];
    V::istore(lanes, chain[0]);
    for (int i = 0; i < 16; ++i) sink[0] ^= lanes[i];
    return static_cast<double>(rounds) * kChains * 128;
  }

  static std::int32_t read(const std::byte* from, std::int64_t bytes) {
    I all[4] = {V::izero(), V::izero(), V::izero(), V::izero()};
    for (std::int64_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        V::prefetch(from + at + 64 * i + 4096);  // over the page's end, where the hardware stops
        all[i] = V::ixor(all[i], V::iload(from + at + 64 * i));
      }
    }
    std::int32_t lanes[16];
    V::istore(lanes, V::ixor(V::ixor(all[0], all[1]), V::ixor(all[2], all[3])));
    for (int i = 1; i < 16; ++i) lanes[0] ^= lanes[i];
    return lanes[0];
  }

  static constexpr ProductKernels table() {
    ProductKernels t{};
    const auto at = [&](DType type) -> TileKernel& { return t.tile[static_cast<std::size_t>(type)]; };
    at(DType::f32) = plain_tile<F32>;
    at(DType::f16) = plain_tile<F16>;
    at(DType::bf16) = plain_tile<Bf16>;
    at(DType::q4_0) = block_tile<kQ4_0>;
    at(DType::q4_1) = block_tile<kQ4_1>;
    at(DType::q5_0) = block_tile<kQ5_0>;
    at(DType::q5_1) = block_tile<kQ5_1>;
    at(DType::q8_0) = block_tile<kQ8_0>;
    at(DType::q2_k) = k_tile<kQ2K>;
    at(DType::q3_k) = k_tile<kQ3K>;
    at(DType::q4_k) = k_tile<kQ4K>;
    at(DType::q5_k) = k_tile<kQ5K>;
    at(DType::q6_k) = k_tile<kQ6K>;
    at(DType::iq4_nl) = block_tile<kIq4Nl>;
    at(DType::iq4_xs) = k_tile<kIq4Xs>;
    at(DType::mxfp4) = block_tile<kMxfp4>;
    t.quantize = quantize;
    t.dot_peak = dot_peak;
    t.read = read;
    return t;
  }
};

}  // namespace conclave
