// How the blocks of few_rows and few_boxes go through the lists.
#pragma once

#include "backends/cuda/active_lists.cuh"
#include "backends/cuda/few_copies.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {

// Blocks have equal runs of all (pass, part), one after another. A part of warps that share goes to all of them, others
// to the warps in turn. The first weights of one matrix are fetched before anything is waited for. `parts`: few_parts().
// `rows_at_once`: of a pass, at most as many as few_rows_at_once() says.
// `multiply(first, end)`: what fetcher.run says; where warps share, parts first .. end - 1.
template <bool kShares, class Fetch, class Multiply>
__device__ __forceinline__ void go_through_lists(const UnitArgs& args, int parts, int rows_at_once, ActiveLists& active,
                                                 TableSlot* slots, Fetch& fetcher, Multiply&& multiply) {
  const int warp = threadIdx.x / kWarp;
  const int share = few_share(args.chunks);
  const int tiles = kShares ? few_tiles(args.chunks) : 1;  // of a part
  const bool one_matrix = args.table.begin == nullptr;
  const auto first_of = [&](unsigned block, int n_passes) {
    const unsigned items = static_cast<unsigned>(n_passes) * static_cast<unsigned>(parts);
    const unsigned each = items / gridDim.x;
    return static_cast<int>(each * block + min(block, items - each * gridDim.x));
  };
  // Parts first .. end - 1 of a pass, then `more` of the next one.
  const auto set_run = [&](TileRun run, int first, int end, int more) {
    run.first = kShares ? 0 : first;
    run.split = kShares ? end * tiles : end - first;
    run.end = run.split + more;
    fetcher.set(run);
  };
  const auto fetch_first = [&](int first) {
    if (kShares) {
      fetcher.start(args, warp / share < tiles ? first * tiles + warp / share : fetcher.run.end);
    } else {
      fetcher.start(args, warp);
    }
  };
  if (one_matrix) {
    set_run({}, first_of(blockIdx.x, 1), first_of(blockIdx.x + 1, 1), 0);
    fetch_first(first_of(blockIdx.x, 1));
  }
  bool early = args.early;
  begin_unless(early);
#pragma unroll 1
  for (int first_list = 0, skip = 0; first_list < args.table.n_lists;) {
    if (!one_matrix) active.find(args.table, first_list, skip, rows_at_once, args.most_rows);
    const int n_passes = one_matrix ? 1 : active.count;
    int item = first_of(blockIdx.x, n_passes);
    int end_item = first_of(blockIdx.x + 1, n_passes);
#pragma unroll 1
    while (item < end_item) {
      const int place = item / parts;
      const int list = one_matrix ? 0 : active.at(place);
      const int first = item - place * parts;
      const int end = min(parts, first + end_item - item);
      item += end - first;
      const RowRange range = one_matrix ? range_of(args.table, list) : active.rows(args.table, place, rows_at_once);
      TileRun run{.list = {list, 0}, .begin = {range.begin, 0}, .left = range.end - range.begin};
      const auto is_mine = [&](int rows) { return rows > 0 && (args.most_rows == 0 || rows <= args.most_rows); };
      // Where this pass and the next have a tile of rows each, warps go from one to the other without waiting.
      RowRange next{0, 0};
      if (!kShares && item < end_item) {
        run.list[1] = active.at(place + 1);
        next = active.rows(args.table, place + 1, rows_at_once);
      }
      if (!is_mine(run.left)) continue;
      run.expert[0] = expert_of(args.table, list);
      run.rows[0] = min(run.left, rows_at_once);
      int more = 0;
      if (run.left <= kRowTile && next.end - next.begin <= kRowTile && is_mine(next.end - next.begin)) {
        more = min(parts, end_item - item);
        item += more;
        run.expert[1] = expert_of(args.table, run.list[1]);
        run.begin[1] = next.begin;
        run.rows[1] = next.end - next.begin;
      }
      run.fetched = one_matrix;
      run.part = item;
      run.end_part = end_item;
      set_run(run, first, end, more);
#pragma unroll 1
      do {
        const TileRun& of = fetcher.run;
        const auto r = static_cast<int>(threadIdx.x);
        TableSlot slot{-1, -1};  // looked up before memory is busy with weights
        if (r < of.rows[0]) slot = slot_of(args.table, of.list[0], of.begin[0] + r);
        if (r >= kRowTile && r - kRowTile < of.rows[1]) {
          slot = slot_of(args.table, of.list[1], of.begin[1] + r - kRowTile);
        }
        if (!of.fetched) fetch_first(first);
        __syncthreads();  // the rows before are done with
        if (r < few_rows_at_once(kShares)) slots[r] = slot;
        __syncthreads();
        begin_if(early);
        early = false;
        multiply(first, end);
      } while (fetcher.go_on(rows_at_once));
      item = fetcher.run.part;
      end_item = fetcher.run.end_part;
    }
    if (one_matrix) break;
    skip = active.has_more() ? active.skipped + kListed : 0;
    first_list = active.begin + (skip > 0 ? 0 : kListed);
    __syncthreads();
  }
  begin_if(early);  // a block that had no rows
}

}  // namespace conclave::cuda
