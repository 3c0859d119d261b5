// Attention as the CPU rows compute it: a block of query rows that see the same keys, against one tile of cached
// positions at a time, with a running maximum and sum per row.
//
// Tiles are 64 positions that start at multiples of 64; splits are 512 positions, at multiples of 512. Per row, in f32,
// every operation rounded once, for every tile of a split that holds a position the row sees:
//
//   s[j]  = scale * (sum over d of q[d] * k[j,d])          one chain of fused multiply-adds, d ascending
//   m'    = max(m, all s[j])
//   p[j]  = exp(s[j] - m'),  r = exp(m - m')
//   sum   = sum * r + (sum over j of p[j])                 lanes j mod 16: (0 + 16) + (32 + 48), then folded in halves
//   acc   = acc * r;  acc = fma(p[j], v[j], acc)           j ascending
//
// A split starts from m = -infinity, sum = 0, acc = 0. Splits are merged in ascending order:
//
//   m' = max(m, m2);  a = exp(m - m'),  b = exp(m2 - m');  sum = sum * a + sum2 * b;  acc = fma(acc2, b, acc * a)
//
// and out = acc / sum. Nothing here depends on the other rows, on where the pages lie or on who computes which split: a
// row has the same bits alone, in any batch, with any number of threads and on every instruction set. A NaN or a plus
// infinity among the scores makes the row NaN, so does a row of nothing but minus infinity. A weight below 2^-126 is 0,
// and 0 times infinity is NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace conclave {

inline constexpr std::int64_t kAttentionTile = 64;
inline constexpr std::int64_t kAttentionSplit = 512;

// What a number of rows have come to. Padding holds anything.
struct AttentionState {
  float* max;  // [n_rows up to a multiple of 16]; -infinity where the row has not seen a position
  float* sum;  // [n_rows up to a multiple of 16]
  float* acc;  // [n_rows][d_v up to a multiple of 16]
};

// One step: the rows of a block against one tile.
struct AttentionTile {
  std::int64_t n_rows;
  std::int64_t d_k;
  std::int64_t d_v;
  float scale;
  const float* q;             // as pack_q leaves it
  const std::int32_t* count;  // [n_rows]: of the first count positions the row sees those that are there; 0: no such
  AttentionState state;

  DType k_type;  // f32, f16, bf16 or q8_0
  DType v_type;
  const std::byte* const* k;  // [64]: rows of the cache; zeros where a position is not there, or past `n`
  const std::byte* const* v;
  std::int64_t n;      // no count is larger
  const float* order;  // [64]: j where position j is there, 64 where it is not
  bool whole;          // all 64 are there
  // Rows that will be wanted soon: asked for, evenly, while the tile is computed.
  const std::byte* const* next_k;  // [n_next]
  const std::byte* const* next_v;
  std::int64_t n_next;
  std::int64_t k_bytes;  // of a row
  std::int64_t v_bytes;

  // Scratch. `up` is up to a multiple of 16.
  float* lines;     // [16][d_k up]
  float* k_floats;  // [4][d_k up][16]
  float* v_floats;  // [4][65][16]
  float* scores;    // [n_rows][64]
  float* rescale;   // [n_rows up]
  float* weight;    // [n_rows up]
};

// Nothing is read past the end of a row.
struct AttentionKernels {
  // Rows of f32, f16 or bf16 into q: [n_rows][d_k], in an order of its own. `line`: d_k up to a multiple of 16, scratch.
  void (*pack_q)(DType type, const std::byte* const* rows, std::int64_t n_rows, std::int64_t d_k, float* line,
                 float* q);
  void (*add_tile)(const AttentionTile& tile);
  // Merges n_rows of `from`, the later split, into `into`.
  void (*merge)(const AttentionState& from, const AttentionState& into, std::int64_t n_rows, std::int64_t d_v);
  // out[r] = acc / sum in f32, f16 or bf16, zeros where the row has seen nothing. A NaN is always the same NaN.
  void (*finish)(const AttentionState& state, std::int64_t n_rows, std::int64_t d_v, DType type, std::byte* const* out);
};

}  // namespace conclave
