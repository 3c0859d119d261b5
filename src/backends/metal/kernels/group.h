// The grouping ops: one threadgroup counts every expert's pairs, adds the counts up, and puts each pair where it belongs.
// A simdgroup looks after an expert at a time and goes through all pairs in order, so that no atomic decides an order.
#pragma once

#include "backends/metal/kernels/kernel.h"

static inline int expert_of_pair(constant GroupArgs& args, Buffers buffers, long pair) {
  const long top_k = args.experts.dims[1];
  const device int* row = (const device int*)row_at(args.experts, buffers.at[GroupArgs::kExperts], pair / top_k);
  return row[pair % top_k];
}

static inline device int* list_of(constant View& v, device uchar* base) {
  return (device int*)(base + v.offset);
}
static inline device int* pair_row_at(constant GroupArgs& args, Buffers buffers, long pair) {
  const long top_k = args.experts.dims[1];
  return (device int*)row_at(args.pair_row, buffers.at[GroupArgs::kPairRow], pair / top_k) + pair % top_k;
}

static inline int parts_of(int count, int per) {
  return per == 0 ? 0 : (count + per - 1) / per;
}

// counts, where each expert's rows begin, and where its blocks or tiles do.
struct GroupLists {
  device int* counts;
  device int* starts;
  device int* parts;
};

// Puts expert e's pairs into every list that was asked for.
static inline void place_expert(constant GroupArgs& args, Buffers buffers, thread const GroupLists& lists, int e,
                                long n_valid, Place at) {
  const long n_pairs = args.experts.dims[0] * args.experts.dims[1];
  const int count = lists.counts[e];
  const int start = lists.starts[e];
  const int part = lists.parts[e];
  int before = 0;
  for (long base = 0; base < n_valid && before < count; base += kSimdWidth) {
    const long pair = base + at.lane;
    const int is_ours = pair < n_valid && expert_of_pair(args, buffers, pair) == e ? 1 : 0;
    const int i = before + simd_prefix_exclusive_sum(is_ours);
    before += simd_sum(is_ours);
    if (is_ours == 0) continue;
    const int row = start + i;
    if (args.row_pair.rank != 0) {
      const int token = int(pair / args.experts.dims[1]);
      list_of(args.row_pair, buffers.at[GroupArgs::kRowPair])[row] = args.by_token != 0 ? token : int(pair);
    }
    if (args.pair_row.rank != 0) *pair_row_at(args, buffers, pair) = row;
    if (args.ids.rank != 0) ((device int*)row_at(args.ids, buffers.at[GroupArgs::kIds], e))[i] = int(pair);
    if (args.sorted_ids.rank != 0) {
      list_of(args.sorted_ids, buffers.at[GroupArgs::kSorted])[part * args.block_size + i] =
          args.packed_ids != 0 ? row : int(pair);
    }
  }
  if (args.sorted_ids.rank != 0) {
    const int blocks = parts_of(count, args.block_size);
    device int* sorted = list_of(args.sorted_ids, buffers.at[GroupArgs::kSorted]) + part * args.block_size;
    for (int i = count + int(at.lane); i < blocks * args.block_size; i += kSimdWidth) sorted[i] = int(n_pairs);
    device int* block_expert = list_of(args.block_expert, buffers.at[GroupArgs::kBlockExpert]);
    for (int b = int(at.lane); b < blocks; b += kSimdWidth) block_expert[part + b] = e;
  }
  if (args.tile_rows != 0) {
    device int* tiles = ints_at(buffers.at[GroupArgs::kTiles], args.tiles);
    for (int b = int(at.lane); b < parts_of(count, args.tile_rows); b += kSimdWidth) {
      device int* tile = tiles + 4 * (part + b);
      tile[0] = e;
      tile[1] = start + b * args.tile_rows;
      tile[2] = min(count - b * args.tile_rows, args.tile_rows);
      tile[3] = 0x7FFFFFFF;
    }
  }
}

// What comes after the last pair, and what sums up.
static inline void finish_lists(constant GroupArgs& args, Buffers buffers, int total, int parts, int largest,
                                Place at) {
  const long n_pairs = args.experts.dims[0] * args.experts.dims[1];
  if (args.row_pair.rank != 0) {
    device int* row_pair = list_of(args.row_pair, buffers.at[GroupArgs::kRowPair]);
    for (long r = total + long(at.index); r < n_pairs; r += at.count) row_pair[r] = -1;
  }
  if (args.sorted_ids.rank != 0) {
    device int* sorted = list_of(args.sorted_ids, buffers.at[GroupArgs::kSorted]);
    const long first = long(parts) * args.block_size;
    for (long i = first + at.index; i < args.sorted_ids.dims[0]; i += at.count) sorted[i] = int(n_pairs);
    device int* block_expert = list_of(args.block_expert, buffers.at[GroupArgs::kBlockExpert]);
    for (long b = parts + long(at.index); b < args.block_expert.dims[0]; b += at.count) block_expert[b] = -1;
  }
  if (args.tile_rows != 0) {
    device int* tiles = ints_at(buffers.at[GroupArgs::kTiles], args.tiles);
    for (int i = parts + int(at.index); i < args.max_tiles; i += int(at.count)) tiles[4 * i + 2] = 0;
  }
  if (at.index != 0) return;
  if (args.offsets.rank != 0) list_of(args.offsets, buffers.at[GroupArgs::kOffsets])[args.n_experts] = total;
  if (args.n_padded.rank != 0) *list_of(args.n_padded, buffers.at[GroupArgs::kPadded]) = parts * args.block_size;
  if (args.ids.rank != 0) {
    *list_of(args.max_rows, buffers.at[GroupArgs::kMaxRows]) = largest;
    device int* gate_up = list_of(args.grid_gate_up, buffers.at[GroupArgs::kGrids]);
    device int* down = list_of(args.grid_down, buffers.at[GroupArgs::kTiles]);
    gate_up[0] = down[0] = max(1, int((long(largest) + args.nr1 - 1) / args.nr1));
    gate_up[1] = int((long(args.d_ff) + args.nr0 - 1) / args.nr0);
    down[1] = int((long(args.d_model) + args.nr0 - 1) / args.nr0);
    gate_up[2] = down[2] = args.n_experts;
  }
  if (args.tile_rows != 0) {
    device int* grids = ints_at(buffers.at[GroupArgs::kGrids], args.grids);
    grids[0] = args.gate_groups;
    grids[3] = args.down_groups;
    grids[1] = grids[4] = 1;
    grids[2] = grids[5] = max(1, parts);
  }
}

static inline void group_pairs(constant GroupArgs& args, Buffers buffers, threadgroup int* shared, Place at) {
  const long n_pairs = args.experts.dims[0] * args.experts.dims[1];
  const long n_valid = live_rows(args.live, buffers.at[GroupArgs::kLive], args.experts.dims[0]) * args.experts.dims[1];
  const int n = args.n_experts;
  GroupLists lists;
  lists.counts = ints_at(buffers.at[GroupArgs::kCounts], args.counts);
  lists.starts = lists.counts + n;
  lists.parts = lists.starts + n;
  if (args.pair_row.rank != 0) {
    for (long p = at.index; p < n_pairs; p += at.count) *pair_row_at(args, buffers, p) = -1;
  }
  if (args.tile_rows != 0) {
    device int* finished = ints_at(buffers.at[GroupArgs::kTiles], args.finished);
    for (long t = at.index; t < args.experts.dims[0]; t += at.count) finished[t] = 0;
  }
  for (int e = int(at.simd); e < n; e += int(at.simds)) {
    int count = 0;
    for (long p = at.lane; p < n_valid; p += kSimdWidth) count += expert_of_pair(args, buffers, p) == e ? 1 : 0;
    count = simd_sum(count);
    if (at.lane == 0) {
      lists.counts[e] = count;
      if (args.tpe.rank != 0) list_of(args.tpe, buffers.at[GroupArgs::kTpe])[e] = count;
    }
  }
  threadgroup_barrier(mem_flags::mem_device);
  const int per = args.tile_rows != 0 ? args.tile_rows : args.block_size;
  int total = 0;
  int parts = 0;
  int largest = 0;
  for (int base = 0; base < n; base += int(at.count)) {
    const int e = base + int(at.index);
    const int count = e < n ? lists.counts[e] : 0;
    int sum = 0;
    const int start = total + group_prefix(count, shared, at, sum);
    total += sum;
    const int part = parts + group_prefix(parts_of(count, per), shared, at, sum);
    parts += sum;
    largest = max(largest, int(group_max(uint(count), (threadgroup uint*)shared, at)));
    if (e < n) {
      lists.starts[e] = start;
      lists.parts[e] = part;
      if (args.offsets.rank != 0) list_of(args.offsets, buffers.at[GroupArgs::kOffsets])[e] = start;
    }
  }
  threadgroup_barrier(mem_flags::mem_device);
  for (int e = int(at.simd); e < n; e += int(at.simds)) place_expert(args, buffers, lists, e, n_valid, at);
  finish_lists(args, buffers, total, parts, largest, at);
}
