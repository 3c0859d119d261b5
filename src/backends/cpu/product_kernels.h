// The one matrix product as the CPU rows compute it: sixteen columns of weights (a tile) against any number of rows.
//
// Weights of a block format are multiplied in integers, straight from the stored blocks. A row of activations is int8
// with one f32 scale per chunk of 256 values:
//
//   scale[c] = max |x| / 127,  q = x * (1 / scale[c]) rounded to nearest even        over chunk c
//
// and one output is, chunk by chunk in ascending order, every operation rounded once in f32, sums in exact integers:
//
//   q4_k q5_k q2_k          y = y + (scale d) * float(sum_g s_g sum_i level_i q_i);  y = y - (scale dmin) * float(sum_g m_g sum_i q_i)
//   q3_k q6_k iq4_xs        y = y + (scale d) * float(sum_g s_g sum_i (level_i - offset) q_i)
//   blocks of 32, each b    y = y + (scale d_b) * float(sum_i (level_i - offset) q_i)
//   q4_1 q5_1, then         y = y + (scale m_b) * float(sum_i q_i)
//
// so every instruction set, any number of rows and any tiling give the same bits. Plain weights (f32, f16, bf16) are 32
// chains of fused multiply-adds over k mod 32 folded in halves, as matmul's canonical order says: the same bits again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace conclave {

inline constexpr int kTileColumns = 16;
inline constexpr std::int64_t kChunk = 256;  // values under one activation scale
inline constexpr std::int64_t kGroup = 16;   // values under one activation sum
inline constexpr std::int64_t kMaxStripTiles = 16;

// One row of activations, in both shapes that products take. Quantised: `q` padded with zeros to whole chunks.
struct ProductRow {
  const float* x;             // [k]: plain weights alone
  const std::int8_t* q;       // [chunks * 256]
  const float* scale;         // [chunks]
  const std::int16_t* sum16;  // [chunks * 16]: sums of 16 values of q
  const std::int16_t* sum32;  // [chunks * 8]: of 32
};

struct TileProduct {
  const std::byte* weights;  // the first column's blocks
  std::int64_t column_stride;
  int n_columns;  // 1 .. 16; the other columns of `out` hold anything
  std::int64_t k;
  const ProductRow* rows;
  std::int64_t n_rows;
  float* out;  // [n_rows][16]
  // Bytes that will be wanted soon: asked for, evenly, while the tile is computed.
  const std::byte* next;
  std::int64_t next_bytes;
};

using TileKernel = void (*)(const TileProduct& tile);

// Several tiles of columns side by side, against rows as they are or as pack() laid them out.
struct StripProduct {
  const std::byte* weights;
  std::int64_t column_stride;
  std::int64_t n_columns;
  std::int64_t k;
  const ProductRow* rows;
  const std::byte* packed;
  std::int64_t n_rows;
  float* out;  // [tiles][n_rows rounded up to 16][16]; columns and rows past the last hold anything
  const std::byte* next;
  std::int64_t next_bytes;
};

using StripKernel = void (*)(const StripProduct& strip);

// Rows that become rows first .. first + n_rows - 1 of a strip, and which of their chunks. `first` is a multiple of 16,
// n_rows too but at the end.
struct PackedRows {
  const ProductRow* rows;
  std::int64_t n_rows;
  std::int64_t first;
  std::int64_t strip_rows;
  std::int64_t first_chunk;
  std::int64_t end_chunk;
  std::byte* to;                // the whole strip's
  std::int64_t rows_begin = 0;  // the first chunk that `rows` have
};

// How strips are multiplied, by instruction sets that have a way of their own.
struct StripKernels {
  std::array<StripKernel, kDTypeCount> strip;  // by the weights' type; null where tiles one by one are as good
  std::int64_t tiles;                          // of a strip: kMaxStripTiles at most
  std::int64_t from_rows;                      // fewer rows take tiles one by one
  // Rows laid out once more: a strip has `packed_bytes` for every 16 rows, or less, and chunk. Null where strips take
  // rows as they are.
  void (*pack)(const PackedRows& rows);
  std::int64_t packed_bytes;
};

struct ProductKernels {
  std::array<TileKernel, kDTypeCount> tile;  // by the weights' type; null where it is none
  const StripKernels* strips = nullptr;      // null where there are none
  // Quantises k values into q, scale, sum16 and sum32. False where the row is not to be multiplied in integers: it has
  // a NaN, an infinity, or a chunk so small (but not 0) that its scale would not be a normal number.
  bool (*quantize)(const float* x, std::int64_t k, std::int8_t* q, float* scale, std::int16_t* sum16,
                   std::int16_t* sum32);
  // For benchmarks. `rounds` rounds of this row's byte dot products on registers, as many chains as it takes, over the
  // two words at `sink`; returns how many operations that was. And `bytes` (a multiple of 256) read as wide as the row
  // can; the result depends on all of them.
  double (*dot_peak)(std::int64_t rounds, std::int32_t* sink);
  std::int32_t (*read)(const std::byte* from, std::int64_t bytes);
};

}  // namespace conclave
