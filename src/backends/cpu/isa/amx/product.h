// Superblock products on AMX tiles: up to 16 rows of activations times 16 columns of weights, with each level already
// multiplied by its group's scale. Such a product has two digits, each a byte and each a tile product over the whole
// superblock. Minimums are a tile product of bf16: its numbers and sums are integers below 2^24. So all sums are exact,
// and the results are those of every other row.
//
// A tile product takes as many cycles as its first operand has rows: activations are the first, so that 37 rows cost 39
// and not 48.
//
// Lost: weights as the first operand, rows padded to 16; tile products per group of 32 with the scales applied to their
// sums (2.5 times slower on 128 rows); one tile of columns after the other through all chunks (the rows then come from
// the L2); a second tile of weights, unpacked over all blocks of rows (10 to 25% slower on 32 rows); two blocks of rows
// at a time (fewer loads, but too many tiles in use).
#pragma once

#include <algorithm>
#include <cstring>

#include "backends/cpu/isa/amx/weights.h"
#include "backends/cpu/isa/avx512/few_rows.h"
#include "backends/cpu/kernels/product.h"

namespace conclave {

struct AmxProduct {
  using V = Avx512;
  using Weights = AmxWeights;
  using Factors = AmxFactors;
  static constexpr std::int64_t kMinRows = 8;  // fewer rows: the vectors of avx512 are as fast
  static constexpr int kRows = 16;

  // A chunk of a strip's rows is a record for each row, then their scales; rows up to a multiple of 16.
  struct alignas(64) Record {
    std::int8_t q[kChunk];
    std::uint16_t fold[32];  // bf16: what meets AmxWeights::fold, then zeros
  };
  static constexpr std::int64_t kPackedBytes = kRows * (sizeof(Record) + sizeof(float));
  struct Chunk {
    Record* rows;
    float* scale;
  };
  static Chunk chunk_at(std::byte* packed, std::int64_t chunk, std::int64_t strip_rows) {
    const std::int64_t blocks = blocks_of(strip_rows);
    std::byte* at = packed + chunk * blocks * kPackedBytes;
    return {reinterpret_cast<Record*>(at), reinterpret_cast<float*>(at + blocks * kRows * sizeof(Record))};
  }
  static std::int64_t blocks_of(std::int64_t rows) { return (rows + kRows - 1) / kRows; }

  static void pack(const PackedRows& p) {
    const std::int64_t end = p.first + p.n_rows;
    for (std::int64_t c = 0; c < p.k / kChunk; ++c) {
      const Chunk chunk = chunk_at(p.to, c, p.strip_rows);
      for (std::int64_t r = p.first; r < end; ++r) {
        const ProductRow& row = p.rows[r - p.first];
        std::memcpy(chunk.rows[r].q, row.q + c * kChunk, kChunk);
        pack_sums(row.sum32 + c * 8, chunk.rows[r].fold);
        chunk.scale[r] = row.scale[c];
      }
      for (std::int64_t r = end; r < blocks_of(end) * kRows; ++r) {
        chunk.rows[r] = {};
        chunk.scale[r] = 0.0F;
      }
    }
  }
  // Eight sums of 32 values, each as two bf16. Weights have 128 + minimum: the ninth pair takes the 128 off again.
  static void pack_sums(const std::int16_t* sum32, std::uint16_t* fold) {
    const __m256i sums = _mm256_cvtepi16_epi32(FewRows::load128(sum32));
    _mm256_store_si256(reinterpret_cast<__m256i*>(fold), two_digits(sums, 0x1F));
    __m256i all = _mm256_add_epi32(sums, _mm256_permute4x64_epi64(sums, 0x4E));
    all = _mm256_add_epi32(all, _mm256_shuffle_epi32(all, 0x4E));
    all = _mm256_add_epi32(all, _mm256_shuffle_epi32(all, 0xB1));
    const __m256i less = _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_slli_epi32(all, 7));
    _mm256_store_si256(reinterpret_cast<__m256i*>(fold + 16), _mm256_maskz_mov_epi32(1, two_digits(less, 0x7FFF)));
  }
  // Each number as two that bf16 holds: what `bits` leave of it, and the rest.
  [[gnu::always_inline]] static inline __m256i two_digits(__m256i x, int bits) {
    const __m256i low = _mm256_and_si256(x, _mm256_set1_epi32(bits));
    const __m256i high = _mm256_castps_si256(_mm256_cvtepi32_ps(_mm256_sub_epi32(x, low)));
    return _mm256_or_si256(high, _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(low)), 16));
  }

  // Tiles 0, 1: the sums of low and high digits; 4: weights; 5: activations. No more tiles than these hold anything:
  // where two threads share a core there are too few registers behind the tiles, and with all eight in use a product
  // takes three times as long.
  struct alignas(64) TileConfig {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {};
    explicit TileConfig(int block_rows) {
      for (int t = 0; t < 8; ++t) rows[t] = static_cast<std::uint8_t>(t == 4 ? kRows : block_rows);
    }
  };
  // Sums over a chunk.
  struct alignas(64) Sums {
    std::int32_t low[kRows][16];  // [row][column]
    std::int32_t high[kRows][16];
    float fold[kRows][16];
  };

  // A tile load does not tell the compiler that it reads memory: what is stored before it, or after it, has to stay so.
  [[gnu::always_inline]] static inline void keep_order() { asm volatile("" ::: "memory"); }

  [[gnu::always_inline]] static inline void multiply_fold(const Weights& w, const Record* x, Sums& to) {
    keep_order();
    _tile_zero(0);
    _tile_loadd(5, x->fold, sizeof(Record));
    _tile_loadd(4, w.fold, 64);
    _tile_dpbf16ps(0, 5, 4);
    _tile_stored(0, to.fold, 64);
  }
  // One step of a block's product: 64 of the chunk's weights.
  template <class Format>
  [[gnu::always_inline]] static inline void multiply(const Weights& w, const Record* x, int step) {
    keep_order();
    _tile_loadd(5, x->q + 64 * step, sizeof(Record));
    _tile_loadd(4, w.digit[step][0], 64);
    _tile_dpbsud(0, 5, 4);
    _tile_loadd(4, w.digit[step][1], 64);
    if constexpr (Format::kHighIsSigned) {
      _tile_dpbssd(1, 5, 4);
    } else {
      _tile_dpbsud(1, 5, 4);
    }
    keep_order();
  }

  // A block of rows whose tile products are done.
  struct Done {
    const Factors* factors = nullptr;
    const Sums* sums = nullptr;
    const float* scale = nullptr;
    float (*y)[kTileColumns] = nullptr;
  };
  // y[row][column] += what a chunk adds, for a quarter of the block: product_kernels.h.
  template <class Format>
  [[gnu::always_inline]] static inline void add_quarter(const Done& done, int rows, int quarter) {
    if (done.y == nullptr) return;
    const __m512 d = V::load(done.factors->d);
    const __m512 m = V::load(done.factors->m);
    const int end = rows * (quarter + 1) / 4;
#pragma GCC unroll 2
    for (int r = rows * quarter / 4; r < end; ++r) {
      const __m512 scale = V::set1(done.scale[r]);
      const __m512i total = V::iadd(V::iload(done.sums->low[r]), V::shl<Format::kShift>(V::iload(done.sums->high[r])));
      __m512 sum = V::add(V::load(done.y[r]), V::mul(V::mul(scale, d), V::to_f(total)));
      if constexpr (Format::kHasMinimum) sum = V::sub(sum, V::mul(V::mul(scale, m), V::load(done.sums->fold[r])));
      V::store(done.y[r], sum);
    }
  }

  // Chunk by chunk, so that the rows of a chunk stay in the L1 while tile after tile of weights meets them; the sums so
  // far, a quarter of the rows' bytes, come from the L2.
  //
  // While the tile unit multiplies a block of rows, the vector units finish the block before it, a quarter per step;
  // while it multiplies the last block, they also unpack the next tile over the steps that it is done with. So the L1
  // has one tile of weights to keep: with two it is too small for the two threads of a core.
  template <class Format>
  static void strip(const StripProduct& p) {
    const std::int64_t chunks = p.k / kChunk;
    const std::int64_t blocks = blocks_of(p.n_rows);
    const std::int64_t tiles = (p.n_columns + kTileColumns - 1) / kTileColumns;
    const std::int64_t n_turns = chunks * tiles;
    const std::int64_t height = (p.n_rows + blocks - 1) / blocks;       // of a block: all are equally high
    auto* y = reinterpret_cast<float(*)[kRows * kTileColumns]>(p.out);  // [tile * blocks + 16 rows]
    std::memset(p.out, 0, static_cast<std::size_t>(tiles * blocks) * sizeof(y[0]));
    if (n_turns == 0) return;  // k = 0: below, the first turn is begun before turns are counted
    const TileConfig config(static_cast<int>(height));
    _tile_loadconfig(&config);

    Weights weights;
    weights.complete_fold();
    Factors factors[3];  // of the turn before, whose sums may still be added, of the present one, and of the next
    Sums sums[2];
    Done last;
    const std::byte* columns[kTileColumns];
    Turn turn;
    find_columns<Format>(p, turn, columns);
    for (int step = 0; step < 4; ++step) Format::unpack(columns, step, weights, factors[0]);
    std::int64_t n_done = 0;
    for (std::int64_t i = 0; i < n_turns; ++i) {
      ask_ahead(p, i, n_turns);
      const Turn now = turn;
      if (++turn.tile == tiles) turn = {.chunk = turn.chunk + 1};
      const bool has_next = i + 1 < n_turns;
      if (has_next) find_columns<Format>(p, turn, columns);
      const Chunk x = chunk_at(const_cast<std::byte*>(p.packed), now.chunk, p.n_rows);
      for (std::int64_t b = 0; b < blocks; ++b) {
        const Record* rows = x.rows + b * height;
        Sums& to = sums[n_done++ % 2];
        if constexpr (Format::kHasMinimum) multiply_fold(weights, rows, to);
        _tile_zero(0);
        _tile_zero(1);
        for (int step = 0; step < 4; ++step) {
          multiply<Format>(weights, rows, step);
          if (has_next && b + 1 == blocks) Format::unpack(columns, step, weights, factors[(i + 1) % 3]);
          add_quarter<Format>(last, static_cast<int>(height), step);
        }
        _tile_stored(0, to.low, 64);
        _tile_stored(1, to.high, 64);
        last = {&factors[i % 3], &to, x.scale + b * height,
                reinterpret_cast<float(*)[kTileColumns]>(y[now.tile * blocks]) + b * height};
      }
    }
    _tile_release();
    for (int quarter = 0; quarter < 4; ++quarter) add_quarter<Format>(last, static_cast<int>(height), quarter);
  }

  // Which chunk of which tile of columns.
  struct Turn {
    std::int64_t chunk = 0;
    std::int64_t tile = 0;
  };
  template <class Format>
  [[gnu::always_inline]] static inline void find_columns(const StripProduct& p, Turn turn, const std::byte** columns) {
    const std::int64_t first = turn.tile * kTileColumns;
    const std::int64_t last = p.n_columns - 1 - first;
    const std::byte* tile = p.weights + first * p.column_stride + turn.chunk * Format::kBytes;
    for (int n = 0; n < kTileColumns; ++n) columns[n] = tile + std::min<std::int64_t>(n, last) * p.column_stride;
  }

  [[gnu::always_inline]] static inline void ask_ahead(const StripProduct& p, std::int64_t step, std::int64_t steps) {
    const std::int64_t end = p.next_bytes * (step + 1) / steps;
    for (std::int64_t at = p.next_bytes * step / steps / 64 * 64; at < end; at += 64) V::prefetch(p.next + at);
  }

  // avx512's, and strips of superblocks.
  static constexpr ProductKernels table() {
    using P = Product<V>;
    constexpr auto at = [](DType type) { return static_cast<std::size_t>(type); };
    ProductKernels t = FewRows::over<P::k_tile<P::kQ4K>, P::k_tile<P::kQ5K>, P::k_tile<P::kQ6K>>(P::table());
    t.strip[at(DType::q4_k)] = strip<AmxQ4K>;
    t.strip[at(DType::q5_k)] = strip<AmxQ5K>;
    t.strip[at(DType::q6_k)] = strip<AmxQ6K>;
    t.pack = pack;
    t.packed_bytes = kPackedBytes;
    t.pack_from = kMinRows;
    return t;
  }
};

}  // namespace conclave
