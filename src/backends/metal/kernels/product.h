// The one matrix product, out[m,n] = sum over k of x[m,k] * w[n,k]: f32 over decoded weights. Two ways of it.
//
// Few rows: a simdgroup has some columns; its lanes share out k in units of 16 weights, each of which is decoded once for
// up to kFewRows rows. Bound: the bytes of the weights.
//
// Many rows: a threadgroup has a tile of 32 rows and 64 weight rows. In steps of 32 along k, each thread decodes 16 weights
// and 8 activations into threadgroup memory, and four simdgroups multiply matrices of 8 by 8. The operands are f32: half
// would need every decoded weight and activation to lie in its range, and f32 runs at the same rate on Apple's GPUs up to M2.
//
// With gate and up, half of the columns are the gate's and half are up's, so that both are at hand for the activation.
#pragma once

#include "backends/metal/kernels/decode.h"

struct Tile {
  int expert;
  int first;    // slot
  int count;    // slots; 0: nothing to do
  int columns;  // to compute at most
};

static inline Tile listed_tile(constant RowTable& table, device uchar* tiles, uint index) {
  const device int* tile = ints_at(tiles, table.tiles) + 4 * index;
  return {tile[0], tile[1], tile[2], tile[3]};
}
static inline Tile tile_of(constant RowTable& table, constant View& live, device uchar* live_base, device uchar* tiles,
                           uint index, int tile_rows) {
  if (table.form == kDenseRows) {
    const int first = int(index) * tile_rows;
    const int rows = int(live_rows(live, live_base, table.rows));
    return {0, first, clamp(rows - first, 0, tile_rows), 0x7FFFFFFF};
  }
  return listed_tile(table, tiles, index);
}

// The row of x that a slot names.
static inline const device uchar* slot_row(constant RowTable& table, constant View& x, device uchar* x_base,
                                           device uchar* from, int slot) {
  return flat_row(x, x_base, table.from_step == 0 ? slot : ints_at(from, table.from)[slot] / table.from_step);
}

static inline const device uchar* weight_row(constant View& w, device uchar* base, int expert, int n) {
  return w.rank == 3 ? row_at2(w, base, expert, n) : row_at(w, base, n);
}

// kUnit activations from k on; those from n on are 0.
static inline void load_unit(int type, const device uchar* row, long k, int n, thread float* out) {
  if (type == kF32) {
    Plain32::unpack(type, row, k, n, out);
  } else if (type == kF16) {
    Plain16::unpack(type, row, k, n, out);
  } else {
    PlainB16::unpack(type, row, k, n, out);
  }
}

// One output of a product: row and column of what the slot names, with the bias of its column.
static inline void put_output(constant ProductArgs& args, Buffers buffers, int slot, int column, float y) {
  const int to = args.table.has_to != 0 ? ints_at(buffers.at[ProductArgs::kTo], args.table.to)[slot] : slot;
  if (args.bias.rank != 0) {
    y += load_float(args.bias.type, buffers.at[ProductArgs::kBias] + args.bias.offset, column);
  }
  store_float(args.out.type, flat_row(args.out, buffers.at[ProductArgs::kOut], to), column, y);
}

// Sums of kFewRows rows with kFewColumns weight rows, complete in every lane. Of gate and up, the odd ones are up's.
struct FewSums {
  float at[kFewRows][kFewColumns];
};
struct FewOperands {
  const device uchar* rows[kFewRows];
  const device uchar* weights[kFewColumns];
  int n_rows;
  int n_weights;
};

template <class Format>
static inline FewSums few_sums(thread const FewOperands& in, int x_type, int w_type, int odd_type, long k, uint lane) {
  FewSums sums;
  for (int r = 0; r < kFewRows; ++r) {
    for (int c = 0; c < kFewColumns; ++c) sums.at[r][c] = 0.0f;
  }
  for (long at = long(lane) * kUnit; at < k; at += kSimdWidth * kUnit) {
    const int n = int(min(long(kUnit), k - at));
    float x[kFewRows][kUnit];
    for (int r = 0; r < kFewRows; ++r) {
      if (r < in.n_rows) load_unit(x_type, in.rows[r], at, n, x[r]);
    }
    for (int c = 0; c < kFewColumns; ++c) {
      if (c >= in.n_weights) continue;
      float w[kUnit];
      Format::unpack(c % 2 == 0 ? w_type : odd_type, in.weights[c], at, n, w);
      for (int r = 0; r < kFewRows; ++r) {
        if (r >= in.n_rows) continue;
        for (int i = 0; i < kUnit; ++i) sums.at[r][c] = fma(x[r][i], w[i], sums.at[r][c]);
      }
    }
  }
  for (int r = 0; r < kFewRows; ++r) {
    for (int c = 0; c < kFewColumns; ++c) {
      if (r < in.n_rows && c < in.n_weights) sums.at[r][c] = simd_sum(sums.at[r][c]);
    }
  }
  return sums;
}

// The sums of a tile, sums[row * kTileWeights + weight row], in threadgroup memory: they are there for all threads when the
// function ends. weights 32 .. 63 are up's where there is one.
template <class Format, bool kGateUp>
static inline void tile_sums(constant RowTable& table, Tile tile, constant View& x, device uchar* x_base,
                             device uchar* from, constant View& w, device uchar* w_base, constant View& up,
                             device uchar* up_base, int column, int columns, threadgroup float* shared, Place at) {
  const long k = inner_of(w);
  threadgroup float* weights = shared;
  threadgroup float* rows = shared + kTileWeights * kTileDepth;
  simdgroup_float8x8 sums[4][2];
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 2; ++j) sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
  // What this thread brings: half of a weight row's step, a quarter of a row's.
  const int weight = int(at.index) / 2;
  const int weight_at = int(at.index) % 2 * kUnit;
  const bool is_up = kGateUp && weight >= kTileWeights / 2;
  const int weight_column = column + (is_up ? weight - kTileWeights / 2 : weight);
  const bool has_weight = weight_column < columns && (!kGateUp || is_up || weight < kTileWeights / 2);
  const device uchar* weight_from = has_weight ? (is_up ? weight_row(up, up_base, tile.expert, weight_column)
                                                        : weight_row(w, w_base, tile.expert, weight_column))
                                               : w_base;
  const int row = int(at.index) / 4;
  const int row_part = int(at.index) % 4 * 8;
  const device uchar* row_from = row < tile.count ? slot_row(table, x, x_base, from, tile.first + row) : x_base;
  // The columns of this simdgroup's matrices.
  const int first = kGateUp ? int(at.simd) * 8 : int(at.simd) * 16;
  const int second = kGateUp ? first + kTileWeights / 2 : first + 8;

  for (long base = 0; base < k; base += kTileDepth) {
    float unit[kUnit];
    const int n = int(clamp(k - base - weight_at, 0l, long(kUnit)));
    if (has_weight && n > 0) {
      Format::unpack(is_up ? up.type : w.type, weight_from, base + weight_at, n, unit);
    } else {
      for (int i = 0; i < kUnit; ++i) unit[i] = 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = 0; i < kUnit; ++i) weights[weight * kTileDepth + weight_at + i] = unit[i];
    for (int i = 0; i < 8; ++i) {
      const long j = base + row_part + i;
      rows[row * kTileDepth + row_part + i] = row < tile.count && j < k ? load_float(x.type, row_from, j) : 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int d = 0; d < kTileDepth; d += 8) {
      simdgroup_float8x8 b[2];
      simdgroup_load(b[0], weights + first * kTileDepth + d, kTileDepth, ulong2{0, 0}, true);
      simdgroup_load(b[1], weights + second * kTileDepth + d, kTileDepth, ulong2{0, 0}, true);
      for (int i = 0; i < 4; ++i) {
        simdgroup_float8x8 a;
        simdgroup_load(a, rows + i * 8 * kTileDepth + d, kTileDepth);
        simdgroup_multiply_accumulate(sums[i][0], a, b[0], sums[i][0]);
        simdgroup_multiply_accumulate(sums[i][1], a, b[1], sums[i][1]);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = 0; i < 4; ++i) {
    simdgroup_store(sums[i][0], shared + i * 8 * kTileWeights + first, kTileWeights);
    simdgroup_store(sums[i][1], shared + i * 8 * kTileWeights + second, kTileWeights);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
