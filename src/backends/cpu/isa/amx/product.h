// Superblock products on AMX tiles: 16 rows of activations times 16 columns, one group of weights at a time, straight
// from the unpacked levels. A tile product per group gives exact integers, so the results are those of every other row.
//
// C[m][n] of a group is at most 2^24 / scale in size for q4_k and q5_k: a few groups are scaled and summed exactly in
// f32 (two fast operations) before they join the 32-bit total; the others are scaled in integers.
//
// Lost: folding the scales into two bytes per weight so that one tile product spans the whole superblock. It halves the
// additions after the product, but costs more in unpacking than it saves below about 64 rows.
#pragma once

#include "backends/cpu/isa/avx512/few_rows.h"
#include "backends/cpu/isa/avx512/vec.h"
#include "backends/cpu/kernels/product.h"

namespace conclave {

struct AmxProduct {
  using V = Avx512;
  static constexpr std::int64_t kMinRows = 8;  // below, the vectors of avx512 are faster
  static constexpr int kRows = 16;

  struct alignas(64) TileConfig {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  };

  // Tiles 0 to 3 are sums, 4 the activations, 5 the weights; 6 and 7 sums and activations of the last, shorter block.
  static void configure(int group_bytes, int rest) {
    TileConfig config;
    const auto set = [&](int tile, int rows, int bytes) {
      config.rows[tile] = static_cast<std::uint8_t>(rows);
      config.row_bytes[tile] = static_cast<std::uint16_t>(bytes);
    };
    for (int tile = 0; tile < 4; ++tile) set(tile, kRows, 64);
    set(4, kRows, group_bytes);
    set(5, group_bytes / 4, 64);
    set(6, rest, 64);
    set(7, rest, group_bytes);
    _tile_loadconfig(&config);
  }

  // sums[i][m][n] of groups g .. g+3.
  template <int kGroupBytes>
  [[gnu::always_inline]] static inline void four_groups(const WeightTile& tile, const std::int8_t* q,
                                                        std::int64_t stride, int g, bool whole,
                                                        std::int32_t (*sums)[kRows][16]) {
    constexpr int kVectors = kGroupBytes / 4;
    const auto weights = [&](int i) { return tile.level[(g + i) * kVectors]; };
    const auto rows = [&](int i) { return q + (g + i) * kGroupBytes; };
    if (whole) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      _tile_loadd(4, rows(0), stride);
      _tile_loadd(5, weights(0), 64);
      _tile_dpbsud(0, 4, 5);
      _tile_loadd(4, rows(1), stride);
      _tile_loadd(5, weights(1), 64);
      _tile_dpbsud(1, 4, 5);
      _tile_loadd(4, rows(2), stride);
      _tile_loadd(5, weights(2), 64);
      _tile_dpbsud(2, 4, 5);
      _tile_loadd(4, rows(3), stride);
      _tile_loadd(5, weights(3), 64);
      _tile_dpbsud(3, 4, 5);
      _tile_stored(0, sums[0], 64);
      _tile_stored(1, sums[1], 64);
      _tile_stored(2, sums[2], 64);
      _tile_stored(3, sums[3], 64);
      return;
    }
    for (int i = 0; i < 4; ++i) {
      _tile_zero(6);
      _tile_loadd(7, rows(i), stride);
      _tile_loadd(5, weights(i), 64);
      _tile_dpbsud(6, 7, 5);
      _tile_stored(6, sums[i], 64);
    }
  }

  // One block of up to 16 rows of one chunk. kExact: how many scaled group sums f32 adds exactly (0: none).
  template <const KFormat<V>& format, int kExact>
  static void block(const WeightTile& tile, const ProductRow* rows, int n_rows, std::int64_t stride, std::int64_t chunk,
                    float* out) {
    constexpr int kGroupBytes = 256 / format.groups;
    alignas(64) std::int32_t sums[4][kRows][16];
    alignas(64) std::int32_t total[kRows][16];
    const std::int8_t* q = rows[0].q + chunk * kChunk;
    for (int g = 0; g < format.groups; g += 4) {
      four_groups<kGroupBytes>(tile, q, stride, g, n_rows == kRows, sums);
      if constexpr (kExact > 0) {
        __m512 scale[4];
        for (int i = 0; i < 4; ++i) scale[i] = V::to_f(V::iload(tile.scale[g + i]));
        for (int r = 0; r < n_rows; ++r) {
          __m512i sum = g == 0 ? V::izero() : V::iload(total[r]);
#pragma GCC unroll 4
          for (int i = 0; i < 4; i += kExact) {
            __m512 exact = V::mul(V::to_f(V::iload(sums[i][r])), scale[i]);
#pragma GCC unroll 4
            for (int j = 1; j < kExact; ++j) exact = V::fma(V::to_f(V::iload(sums[i + j][r])), scale[i + j], exact);
            sum = V::iadd(sum, V::to_i(exact));
          }
          V::istore(total[r], sum);
        }
      } else {
        __m512i scale[4];
        for (int i = 0; i < 4; ++i) scale[i] = V::iload(tile.scale[g + i]);
        for (int r = 0; r < n_rows; ++r) {
          __m512i sum = g == 0 ? V::izero() : V::iload(total[r]);
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) sum = V::iadd(sum, V::imul(V::iload(sums[i][r]), scale[i]));
          V::istore(total[r], sum);
        }
      }
    }
    for (int r = 0; r < n_rows; ++r) {
      Product<V>::add_chunk<format>(tile, rows[r], chunk, V::iload(total[r]), out + kTileColumns * r);
    }
  }

  template <const KFormat<V>& format, int kExact>
  static void k_tile(const TileProduct& p) {
    if (p.n_rows < kMinRows) {
      Product<V>::k_tile<format>(p);
      return;
    }
    const std::byte* columns[kTileColumns];
    Product<V>::find_columns(p, columns);
    Product<V>::clear(p);
    const std::int64_t chunks = p.k / kChunk;
    const std::int64_t stride = p.rows[1].q - p.rows[0].q;
    const int rest = static_cast<int>(p.n_rows % kRows);
    configure(256 / format.groups, rest == 0 ? kRows : rest);
    WeightTile tile;
    for (std::int64_t c = 0; c < chunks; ++c) {
      Product<V>::ask_ahead(p, c, chunks);
      format.unpack(columns, tile);
      for (int n = 0; n < kTileColumns; ++n) columns[n] += format.bytes;
      for (std::int64_t r = 0; r < p.n_rows; r += kRows) {
        const int n_rows = static_cast<int>(p.n_rows - r < kRows ? p.n_rows - r : kRows);
        block<format, kExact>(tile, p.rows + r, n_rows, stride, c, p.out + kTileColumns * r);
      }
    }
    _tile_release();
  }

  static constexpr ProductKernels table() {
    ProductKernels t = Product<V>::table();  // blocks of 32, plain weights and few rows are avx512's
    const auto at = [&](DType type) -> TileKernel& { return t.tile[static_cast<std::size_t>(type)]; };
    at(DType::q2_k) = k_tile<Product<V>::kQ2K, 4>;  // 16 * 3 * 127 * 15 * 4 < 2^24
    at(DType::q3_k) = k_tile<Product<V>::kQ3K, 4>;  // 16 * 7 * 127 * 32 * 4
    at(DType::iq4_xs) = k_tile<Product<V>::kIq4Xs, 0>;
    t = FewRows::over<k_tile<Product<V>::kQ4K, 4>,      // 32 * 15 * 127 * 63 * 4
                      k_tile<Product<V>::kQ5K, 2>,      // 32 * 31 * 127 * 63 * 2
                      k_tile<Product<V>::kQ6K, 1>>(t);  // 16 * 63 * 127 * 128
    t.even_rows = kMinRows;
    return t;
  }
};

static_assert(32 * 15 * 127 * 63 * 4 < (1 << 24) && 32 * 31 * 127 * 63 * 2 < (1 << 24) &&
              16 * 63 * 127 * 128 < (1 << 24));

}  // namespace conclave
