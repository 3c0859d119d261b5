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
// the L2); a second tile of weights (10 to 25% slower on 32 rows); two blocks of rows at a time (fewer loads, but too
// many tiles in use); minimums in vectors; all unpacking after a step's tile instructions instead of between them; sums
// that are never set to zero, a block's being a difference (4% slower).
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

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
  using Columns = const std::byte* const*;

  // A chunk of a strip's rows: their values, what meets AmxWeights::fold, their scales; rows up to a multiple of 16.
  struct Chunk {
    std::int8_t (*q)[kChunk];
    std::uint16_t (*fold)[32];  // bf16, the rest zeros
    float* scale;
  };
  static constexpr std::int64_t kPackedBytes = kRows * (kChunk + 64 + sizeof(float));
  static Chunk chunk_at(std::byte* packed, std::int64_t chunk, std::int64_t strip_rows) {
    const std::int64_t rows = blocks_of(strip_rows) * kRows;
    std::byte* q = packed + chunk * blocks_of(strip_rows) * kPackedBytes;
    std::byte* fold = q + rows * kChunk;
    return {reinterpret_cast<std::int8_t(*)[kChunk]>(q), reinterpret_cast<std::uint16_t(*)[32]>(fold),
            reinterpret_cast<float*>(fold + rows * 64)};
  }
  static std::int64_t blocks_of(std::int64_t rows) { return (rows + kRows - 1) / kRows; }

  static void pack(const PackedRows& p) {
    const std::int64_t end = p.first + p.n_rows;
    for (std::int64_t r = p.first; r < end; ++r) {
      const ProductRow& row = p.rows[r - p.first];
      for (std::int64_t c = p.first_chunk; c < p.end_chunk; ++c) {
        const Chunk chunk = chunk_at(p.to, c, p.strip_rows);
        const std::int64_t at = c - p.rows_begin;
        std::memcpy(chunk.q[r], row.q + at * kChunk, kChunk);
        pack_sums(row.sum32 + at * 8, chunk.fold[r]);
        chunk.scale[r] = row.scale[at];
      }
    }
    for (std::int64_t c = p.first_chunk; c < p.end_chunk && end < blocks_of(end) * kRows; ++c) {
      const Chunk chunk = chunk_at(p.to, c, p.strip_rows);
      const auto missing = static_cast<std::size_t>(blocks_of(end) * kRows - end);
      std::memset(chunk.q[end], 0, missing * sizeof(chunk.q[end]));
      std::memset(chunk.fold[end], 0, missing * sizeof(chunk.fold[end]));
      std::fill_n(chunk.scale + end, missing, 0.0F);
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
  // A block of rows whose tile products are done.
  struct Done {
    const Factors* factors;
    const Sums* sums;
    const float* scale;
    float (*y)[kTileColumns];
  };
  // What a block of rows is multiplied by, and what the vector units do meanwhile.
  struct Block {
    Weights* weights;
    Columns columns;       // of the present tile, whose second half is unpacked while its first block meets the first
    Columns next_columns;  // of the next
    Factors* next_factors;
    const std::int8_t (*x)[kChunk];
    const std::uint16_t (*fold)[32];
    Sums* to;
    Done last;
    int height;
    const std::byte* ahead;  // what will be wanted, asked for every `stride` bytes
    std::int64_t stride;
  };

  // A tile load does not tell the compiler that it reads memory: what is stored before it, or after it, has to stay so.
  [[gnu::always_inline]] static inline void keep_order() { asm volatile("" ::: "memory"); }

  // The tile products of a block. Between two tile instructions stands a piece of the vector units' work: only a few
  // tile instructions can be under way at a time, and the next one holds up whatever comes after it. Returns what to
  // ask for next.
  template <class Format, bool kFirst, bool kLast>
  static const std::byte* multiply(const Block& block) {
    Work<Format, kFirst, kLast> work{block, {}, V::load(block.last.factors->d), V::load(block.last.factors->m)};
    keep_order();
    if constexpr (Format::kHasMinimum) {
      _tile_zero(0);
      _tile_loadd(5, work.block.fold, 64);
    }
    work.template piece<0>();
    if constexpr (Format::kHasMinimum) _tile_loadd(4, work.block.weights->fold, 64);
    work.template piece<1>();
    if constexpr (Format::kHasMinimum) _tile_dpbf16ps(0, 5, 4);
    work.template piece<2>();
    if constexpr (Format::kHasMinimum) _tile_stored(0, work.block.to->fold, 64);
    work.template piece<3>();
    _tile_zero(0);
    _tile_zero(1);
    step<Format, 0>(work);
    step<Format, 1>(work);
    step<Format, 2>(work);
    step<Format, 3>(work);
    _tile_stored(0, work.block.to->low, 64);
    _tile_stored(1, work.block.to->high, 64);
    keep_order();
    return work.block.ahead;
  }
  // 64 of the chunk's weights.
  template <class Format, int s, class Work>
  [[gnu::always_inline]] static inline void step(Work& work) {
    _tile_loadd(5, work.block.x[0] + 64 * s, kChunk);
    work.template piece<piece_of(s, 0)>();
    _tile_loadd(4, work.block.weights->digit[s][0], 64);
    work.template piece<piece_of(s, 1)>();
    _tile_dpbsud(0, 5, 4);
    work.template piece<piece_of(s, 2)>();
    _tile_loadd(4, work.block.weights->digit[s][1], 64);
    work.template piece<piece_of(s, 3)>();
    if constexpr (Format::kHighIsSigned) {
      _tile_dpbssd(1, 5, 4);
    } else {
      _tile_dpbsud(1, 5, 4);
    }
    work.template piece<piece_of(s, 4)>();
  }

  // What the vector units do while a block is multiplied, in pieces: after each of the instructions for the minimums,
  // then after each of a step's five.
  static constexpr int kFoldPieces = 4;
  static constexpr int kStepPieces = 5;
  static constexpr int piece_of(int step, int i) { return kFoldPieces + kStepPieces * step + i; }
  static constexpr int kPieces = kFoldPieces + 4 * kStepPieces;
  // What piece i does of `count` things that are spread over the pieces begin .. end - 1: thing<n>() for each.
  template <int i, int begin, int end, int count, class Thing>
  [[gnu::always_inline]] static inline void spread(Thing thing) {
    if constexpr (i >= begin && i < end) {
      constexpr int kFirstThing = count * (i - begin) / (end - begin);
      constexpr int kEnd = count * (i + 1 - begin) / (end - begin);
      [&]<int... n>(std::integer_sequence<int, n...>) __attribute__((always_inline)) {
        (thing.template operator()<kFirstThing + n>(), ...);
      }
      (std::make_integer_sequence<int, kEnd - kFirstThing>());
    }
  }
  template <class Format, bool kFirst, bool kLast>
  struct Work {
    // Lines to ask for a piece, so that a block or two ask for a chunk of sixteen columns.
    static constexpr int kLines = (Format::kBytes * kTileColumns / 64 / (kFirst && kLast ? 1 : 2) + kPieces) / kPieces;
    static constexpr bool kAlone = kFirst && kLast;
    // When the second half of the present tile has to be there, and from when on its first half is free.
    static constexpr int kHere = kAlone ? piece_of(1, 1) : Format::kPartIsQuarter ? piece_of(2, 3) : piece_of(2, 0);
    static constexpr int kFree = kAlone ? piece_of(2, 0) : Format::kPartIsQuarter ? piece_of(0, 4) : piece_of(1, 4);
    Block block;
    AmxPart part;
    __m512 d;
    __m512 m;

    template <int i>
    [[gnu::always_inline]] void piece() {
      keep_order();
      for (int line = 0; line < kLines; ++line, block.ahead += block.stride) V::prefetch(block.ahead);
      if constexpr (kFirst) {
        spread<i, 0, kHere, 2 * kAmxPartPieces>([&]<int n>() __attribute__((always_inline)) {
          Format::template unpack<2 + n / kAmxPartPieces, n % kAmxPartPieces>(block.columns, *block.weights, part);
        });
      }
      if constexpr (kLast) {
        spread<i, kAlone ? kHere : 2, kFree, kAmxHeaderPieces>([&]<int n>() __attribute__((always_inline)) {
          Format::template header<n>(block.next_columns, *block.weights, *block.next_factors, part);
        });
        spread<i, kFree, kPieces, 2 * kAmxPartPieces>([&]<int n>() __attribute__((always_inline)) {
          Format::template unpack<n / kAmxPartPieces, n % kAmxPartPieces>(block.next_columns, *block.weights, part);
        });
      }
      // At first, the sums of the block before are on their way to memory.
      spread<i, kFoldPieces, kPieces, kRows>([&]<int row>() __attribute__((always_inline)) {
        if (row < block.height) add_row<Format>(block.last, d, m, row);
      });
      keep_order();
    }
  };
  // y[row][column] += what a chunk adds: product_kernels.h.
  template <class Format>
  [[gnu::always_inline]] static inline void add_row(const Done& done, __m512 d, __m512 m, int r) {
    const __m512 scale = V::set1(done.scale[r]);
    const __m512i total = V::iadd(V::iload(done.sums->low[r]), V::shl<Format::kShift>(V::iload(done.sums->high[r])));
    __m512 y = V::add(V::load(done.y[r]), V::mul(V::mul(scale, d), V::to_f(total)));
    if constexpr (Format::kHasMinimum) y = V::sub(y, V::mul(V::mul(scale, m), V::load(done.sums->fold[r])));
    V::store(done.y[r], y);
  }

  // Chunk by chunk, so that the rows of a chunk stay in the L1 while tile after tile of weights meets them; the sums so
  // far, a quarter of the rows' bytes, come from the L2.
  //
  // While the tile unit multiplies a block of rows, the vector units finish the block before it; while it multiplies
  // the last block, they also unpack the first half of the next tile, and the second half while that tile meets its
  // first block. So the L1 has one tile of weights to keep: with two it is too small for the two threads of a core.
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
    const std::byte* columns[2][kTileColumns];
    // Before the first block there is none to finish: this one adds nothing to nowhere.
    factors[2] = {};
    sums[1] = {};
    alignas(64) float nowhere[kRows][kTileColumns] = {};
    const float no_scale[kRows] = {};
    Done last{&factors[2], &sums[1], no_scale, nowhere};

    Turn turn;
    find_columns<Format>(p, turn, columns[0]);
    AmxPart part;
    spread<0, 0, 1, kAmxHeaderPieces>([&]<int n>() __attribute__((always_inline)) {
      Format::template header<n>(columns[0], weights, factors[0], part);
    });
    spread<0, 0, 1, 2 * kAmxPartPieces>([&]<int n>() __attribute__((always_inline)) {
      Format::template unpack<n / kAmxPartPieces, n % kAmxPartPieces>(columns[0], weights, part);
    });
    const auto multiply_block = blocks == 1 ? multiply<Format, true, true> : multiply<Format, false, false>;
    const std::byte* ahead = p.next_bytes > 0 ? p.next : p.weights;
    const int lines = blocks == 1 ? Work<Format, true, true>::kLines : Work<Format, false, false>::kLines;
    const std::int64_t stride = p.next_bytes / (n_turns * blocks * kPieces * lines);
    std::int64_t n_done = 0;
    for (std::int64_t i = 0; i < n_turns; ++i) {
      const Turn now = turn;
      if (i + 1 < n_turns && ++turn.tile == tiles) turn = {.chunk = turn.chunk + 1};
      find_columns<Format>(p, turn, columns[(i + 1) % 2]);
      const Chunk x = chunk_at(const_cast<std::byte*>(p.packed), now.chunk, p.n_rows);
      for (std::int64_t b = 0; b < blocks; ++b) {
        Sums& to = sums[n_done++ % 2];
        const Block block{.weights = &weights,
                          .columns = columns[i % 2],
                          .next_columns = columns[(i + 1) % 2],
                          .next_factors = &factors[(i + 1) % 3],
                          .x = x.q + b * height,
                          .fold = x.fold + b * height,
                          .to = &to,
                          .last = last,
                          .height = static_cast<int>(height),
                          .ahead = ahead,
                          .stride = stride};
        if (blocks > 1 && b == 0) {
          ahead = multiply<Format, true, false>(block);
        } else if (blocks > 1 && b + 1 == blocks) {
          ahead = multiply<Format, false, true>(block);
        } else {
          ahead = multiply_block(block);
        }
        last = {&factors[i % 3], &to, x.scale + b * height,
                reinterpret_cast<float(*)[kTileColumns]>(y[now.tile * blocks]) + b * height};
      }
    }
    _tile_release();
    const __m512 d = V::load(last.factors->d);
    const __m512 m = V::load(last.factors->m);
    for (int r = 0; r < height; ++r) add_row<Format>(last, d, m, r);
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

  static constexpr StripKernels table() {
    constexpr auto at = [](DType type) { return static_cast<std::size_t>(type); };
    StripKernels t{
        .strip = {}, .tiles = kMaxStripTiles, .from_rows = kMinRows, .pack = pack, .packed_bytes = kPackedBytes};
    t.strip[at(DType::q4_k)] = strip<AmxQ4K>;
    t.strip[at(DType::q5_k)] = strip<AmxQ5K>;
    t.strip[at(DType::q6_k)] = strip<AmxQ6K>;
    return t;
  }
};

}  // namespace conclave
