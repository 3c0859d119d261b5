// The rows of an expert product, given in any form, made into tiles and slots that the product kernels trust. Nothing in
// the lists is trusted: an entry that names no row is dropped, and of several that name one output row the last list's last
// one stays. One threadgroup; a simdgroup looks after a list at a time.
#include "backends/metal/kernels/kernel.h"

// Entries first .. first + count - 1 of a list, for one expert.
struct RowList {
  long first;
  long count;
  int expert;
};

// How far an indirect grid reaches along one of its axes.
static inline long grid_reach(constant TableArgs& args, Buffers buffers, int axis, long step) {
  return long(uint(int_at(args.grid, buffers.at[TableArgs::kGrid], axis))) * step;
}

static inline RowList row_list(constant TableArgs& args, Buffers buffers, int l) {
  if (args.form == kListedPairs) {
    long reach = args.ids.dims[1];
    if (args.grid.rank != 0) {
      if (l >= grid_reach(args, buffers, 2, 1)) return {0, 0, 0};
      reach = min(reach, grid_reach(args, buffers, 0, args.nr1));
    }
    return {0, clamp(long(int_at(args.tpe, buffers.at[TableArgs::kTpe], l)), 0l, reach), l};
  }
  if (args.form == kBlockPairs) {
    const int expert = int_at(args.block_expert, buffers.at[TableArgs::kBlockExpert], l);
    if (expert < 0 || expert >= args.n_experts) return {0, 0, 0};
    const long first = long(l) * args.block_size;
    const long end = min(long(int_at(args.n_padded, buffers.at[TableArgs::kPadded], 0)), args.sorted_ids.dims[0]);
    return {first, clamp(end - first, 0l, long(args.block_size)), expert};
  }
  const long first = max(0, int_at(args.offsets, buffers.at[TableArgs::kOffsets], l));
  const long end = min(int_at(args.offsets, buffers.at[TableArgs::kOffsets], l + 1), int(args.n_slots));
  return {first, max(0l, end - first), l};
}

// What entry i of a list names: a row of the output, and of x. -1: nothing.
struct Named {
  int from;
  int to;
};
static inline Named named(constant TableArgs& args, Buffers buffers, thread const RowList& list, int l, long i) {
  if (args.form == kPackedRows) return {int(list.first + i), int(list.first + i)};
  int pair = 0;
  if (args.form == kListedPairs) {
    pair = ((const device int*)row_at(args.ids, buffers.at[TableArgs::kIds], l))[i];
  } else if (args.form == kBlockPairs) {
    pair = int_at(args.sorted_ids, buffers.at[TableArgs::kSorted], list.first + i);
    if (args.packed_ids != 0 && pair >= 0 && pair < args.n_outputs) {
      pair = int_at(args.row_pair, buffers.at[TableArgs::kRowPair], pair);
    }
  } else {
    pair = int_at(args.row_pair, buffers.at[TableArgs::kRowPair], list.first + i);
  }
  if (pair < 0 || pair >= args.n_outputs) return {-1, -1};
  const int token = pair / args.top_k;
  if (args.form == kPackedTokens) return {token, int(list.first + i)};
  return {args.per_pair != 0 ? pair : token, pair};
}

static void row_table(constant TableArgs& args, Buffers buffers, threadgroup uchar* shared, Place at) {
  device uchar* scratch = buffers.at[TableArgs::kScratch];
  device int* last_list = ints_at(buffers.at[TableArgs::kOwner], args.owner);
  device int* last_entry = last_list + args.n_outputs;
  device int* counts = ints_at(scratch, args.lists);
  device int* starts = counts + args.n_lists;
  device int* from = ints_at(scratch, args.from);
  device int* to = ints_at(scratch, args.to);
  device int* tiles = ints_at(scratch, args.tiles);
  for (long i = at.index; i < 2l * args.n_outputs; i += at.count) last_list[i] = -1;
  threadgroup_barrier(mem_flags::mem_device);
  // Who names a row last: the list, then the entry of that list.
  for (int pass = 0; pass < 2; ++pass) {
    for (int l = int(at.simd); l < args.n_lists; l += int(at.simds)) {
      const RowList list = row_list(args, buffers, l);
      for (long i = at.lane; i < list.count; i += kSimdWidth) {
        const int row = named(args, buffers, list, l, i).to;
        if (row < 0) continue;
        if (pass == 0) {
          atomic_fetch_max_explicit((device atomic_int*)(last_list + row), l, memory_order_relaxed);
        } else if (last_list[row] == l) {
          atomic_fetch_max_explicit((device atomic_int*)(last_entry + row), int(i), memory_order_relaxed);
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_device);
  }
  for (int l = int(at.simd); l < args.n_lists; l += int(at.simds)) {
    const RowList list = row_list(args, buffers, l);
    int count = 0;
    for (long i = at.lane; i < list.count; i += kSimdWidth) {
      const int row = named(args, buffers, list, l, i).to;
      if (row >= 0 && last_list[row] == l && last_entry[row] == int(i)) ++count;
    }
    count = simd_sum(count);
    if (at.lane == 0) counts[l] = count;
  }
  threadgroup_barrier(mem_flags::mem_device);
  int slots = 0;
  int n_tiles = 0;
  const long columns =
      args.grid.rank == 0 ? long(args.columns) : min(long(args.columns), grid_reach(args, buffers, 1, args.nr0));
  for (int base = 0; base < args.n_lists; base += int(at.count)) {
    const int l = base + int(at.index);
    const int count = l < args.n_lists ? counts[l] : 0;
    int sum = 0;
    const int start = slots + group_prefix(count, (threadgroup int*)shared, at, sum);
    slots += sum;
    const int parts = (count + args.tile_rows - 1) / args.tile_rows;
    const int part = n_tiles + group_prefix(parts, (threadgroup int*)shared, at, sum);
    n_tiles += sum;
    if (l < args.n_lists) starts[l] = start;
    for (int b = 0; b < parts; ++b) {
      device int* tile = tiles + 4 * (part + b);
      tile[0] = row_list(args, buffers, l).expert;
      tile[1] = start + b * args.tile_rows;
      tile[2] = min(count - b * args.tile_rows, args.tile_rows);
      tile[3] = int(columns);
    }
  }
  threadgroup_barrier(mem_flags::mem_device);
  for (int l = int(at.simd); l < args.n_lists; l += int(at.simds)) {
    const RowList list = row_list(args, buffers, l);
    int next = starts[l];
    for (long base = 0; base < list.count; base += kSimdWidth) {
      const long i = base + at.lane;
      Named entry = {-1, -1};
      if (i < list.count) entry = named(args, buffers, list, l, i);
      const int stays = entry.to >= 0 && last_list[entry.to] == l && last_entry[entry.to] == int(i) ? 1 : 0;
      const int slot = next + simd_prefix_exclusive_sum(stays);
      next += simd_sum(stays);
      if (stays == 0) continue;
      from[slot] = entry.from;
      to[slot] = entry.to;
    }
  }
  if (at.index != 0) return;
  if (n_tiles == 0) tiles[2] = 0;
  device int* grid = ints_at(scratch, args.grids);
  grid[0] = max(1, int((columns + args.columns_of_group - 1) / args.columns_of_group));
  grid[1] = 1;
  grid[2] = max(1, n_tiles);
}

KERNEL(moe_row_table, TableArgs, row_table)
