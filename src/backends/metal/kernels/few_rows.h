// Products of few rows, as kernels.
#pragma once

#include "backends/metal/kernels/finish.h"

// The operands of a simdgroup: the rows of its tile, and its columns: those of w, or half of them of w and half of up.
template <bool kGateUp>
static inline FewOperands few_operands(constant RowTable& table, Tile tile, constant View& x, device uchar* x_base,
                                       device uchar* from, constant View& w, device uchar* w_base, constant View& up,
                                       device uchar* up_base, int column, int columns) {
  FewOperands in;
  in.n_rows = tile.count;
  for (int r = 0; r < kFewRows; ++r) {
    in.rows[r] = r < tile.count ? slot_row(table, x, x_base, from, tile.first + r) : x_base;
  }
  const int wide = kGateUp ? kFewColumns / 2 : int(kFewColumns);
  in.n_weights = 0;
  for (int c = 0; c < wide; ++c) {
    if (column + c >= columns) continue;
    if (kGateUp) {
      in.weights[2 * c] = weight_row(w, w_base, tile.expert, column + c);
      in.weights[2 * c + 1] = weight_row(up, up_base, tile.expert, column + c);
      in.n_weights += 2;
    } else {
      in.weights[c] = weight_row(w, w_base, tile.expert, column + c);
      in.n_weights += 1;
    }
  }
  return in;
}

template <class Format, bool kGateUp>
static void few_rows(constant ProductArgs& args, Buffers buffers, threadgroup uchar*, Place at) {
  const Tile tile = tile_of(args.table, args.live, buffers.at[ProductArgs::kLive], buffers.at[ProductArgs::kTiles],
                            at.group.z, kFewRows);
  const int columns = min(int(args.w.dims[args.w.rank - 2]), tile.columns);
  const int wide = kGateUp ? kFewColumns / 2 : int(kFewColumns);
  const int column = (int(at.group.x) * kFewSimds + int(at.simd)) * wide;
  if (tile.count == 0 || column >= columns) return;
  const FewOperands in = few_operands<kGateUp>(args.table, tile, args.x, buffers.at[ProductArgs::kX],
                                               buffers.at[ProductArgs::kFrom], args.w, buffers.at[ProductArgs::kW],
                                               args.up, buffers.at[ProductArgs::kUp], column, columns);
  const FewSums sums =
      few_sums<Format>(in, args.x.type, args.w.type, kGateUp ? args.up.type : args.w.type, inner_of(args.w), at.lane);
  // Lane r * wide + c stores column c of row r.
  for (int r = 0; r < kFewRows; ++r) {
    for (int c = 0; c < wide; ++c) {
      if (r >= tile.count || column + c >= columns || int(at.lane) != r * wide + c) continue;
      const float y = kGateUp ? gated(args.act, sums.at[r][2 * c], sums.at[r][2 * c + 1]) : sums.at[r][c];
      put_output(args, buffers, tile.first + r, column + c, y);
    }
  }
}

template <class Format>
static void few_finish(constant FinishArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const Tile tile = listed_tile(args.table, buffers.at[FinishArgs::kTiles], at.group.z);
  if (tile.count == 0) return;
  const int columns = int(args.w.dims[1]);
  const int column = (int(at.group.x) * kFewSimds + int(at.simd)) * kFewColumns;
  const FewOperands in =
      few_operands<false>(args.table, tile, args.x, buffers.at[FinishArgs::kX], buffers.at[FinishArgs::kFrom], args.w,
                          buffers.at[FinishArgs::kW], args.w, buffers.at[FinishArgs::kW], column, columns);
  const FewSums sums = few_sums<Format>(in, args.x.type, args.w.type, args.w.type, inner_of(args.w), at.lane);
  for (int r = 0; r < kFewRows; ++r) {
    for (int c = 0; c < kFewColumns; ++c) {
      if (r >= tile.count || column + c >= columns || int(at.lane) != r * kFewColumns + c) continue;
      store_expert_out(args, buffers, tile.first + r, column + c, sums.at[r][c]);
    }
  }
  finish_tile(args, buffers, tile, (threadgroup float*)shared, at);
}

#define FEW_ROWS(format, Format)                                    \
  KERNEL(few_rows_##format, ProductArgs, few_rows<Format, false>)   \
  KERNEL(few_gate_up_##format, ProductArgs, few_rows<Format, true>) \
  KERNEL(few_finish_##format, FinishArgs, few_finish<Format>)
