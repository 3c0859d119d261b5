// Products of many rows, as kernels.
#pragma once

#include "backends/metal/kernels/finish.h"

template <class Format, bool kGateUp>
static void many_rows(constant ProductArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const Tile tile = tile_of(args.table, args.live, buffers.at[ProductArgs::kLive], buffers.at[ProductArgs::kTiles],
                            at.group.z, kTileRows);
  const int columns = min(int(args.w.dims[args.w.rank - 2]), tile.columns);
  const int wide = kGateUp ? kTileWeights / 2 : int(kTileWeights);
  const int column = int(at.group.x) * wide;
  if (tile.count == 0 || column >= columns) return;
  threadgroup float* sums = (threadgroup float*)shared;
  tile_sums<Format, kGateUp>(args.table, tile, args.x, buffers.at[ProductArgs::kX], buffers.at[ProductArgs::kFrom],
                             args.w, buffers.at[ProductArgs::kW], args.up, buffers.at[ProductArgs::kUp], column,
                             columns, sums, at);
  for (int i = int(at.index); i < tile.count * wide; i += kTileThreads) {
    const int r = i / wide;
    const int c = i % wide;
    if (column + c >= columns) continue;
    float y = sums[r * kTileWeights + c];
    if (kGateUp) y = gated(args.act, y, sums[r * kTileWeights + c + kTileWeights / 2]);
    put_output(args, buffers, tile.first + r, column + c, y);
  }
}

template <class Format>
static void many_finish(constant FinishArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  const Tile tile = listed_tile(args.table, buffers.at[FinishArgs::kTiles], at.group.z);
  if (tile.count == 0) return;
  const int columns = int(args.w.dims[1]);
  const int column = int(at.group.x) * kTileWeights;
  threadgroup float* sums = (threadgroup float*)shared;
  tile_sums<Format, false>(args.table, tile, args.x, buffers.at[FinishArgs::kX], buffers.at[FinishArgs::kFrom], args.w,
                           buffers.at[FinishArgs::kW], args.w, buffers.at[FinishArgs::kW], column, columns, sums, at);
  for (int i = int(at.index); i < tile.count * kTileWeights; i += kTileThreads) {
    const int c = i % kTileWeights;
    if (column + c < columns) store_expert_out(args, buffers, tile.first + i / kTileWeights, column + c, sums[i]);
  }
  finish_tile(args, buffers, tile, sums, at);
}

#define MANY_ROWS(format, Format)                                     \
  KERNEL(many_rows_##format, ProductArgs, many_rows<Format, false>)   \
  KERNEL(many_gate_up_##format, ProductArgs, many_rows<Format, true>) \
  KERNEL(many_finish_##format, FinishArgs, many_finish<Format>)
