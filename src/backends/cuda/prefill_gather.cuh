// How rows get to where prefill_rows and half_prefill multiply them.
#pragma once

#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/prefill_copies.cuh"
#include "backends/cuda/row_boxes.h"

namespace conclave::cuda {

#if CONCLAVE_HOPPER

// The rows of a tile that lie one after another, by one warp.
template <DType type, int kRows>
__device__ __forceinline__ void prefill_boxes(const PrefillArgs& args, const PrefillTile& tile, const RowBoxes& from,
                                              const PrefillMemory<type, kRows>& memory,
                                              Ring<prefill_halves(type, kRows)>& ring, int lane) {
  static_assert(kRows / kBoxRows <= kWarp);
  auto& shared = memory.shared();
  const int boxes = (tile.count + kBoxRows - 1) / kBoxRows;
#pragma unroll 1
  for (int half = 0; half < 2 * args.chunks; ++half, ring.next()) {
    std::uint64_t* full = &shared.rows_full[ring.place];
    barrier_wait(&shared.rows_empty[ring.place], ring.parity ^ 1U);
    if (lane == 0) expect_bytes(full, boxes * 2 * kBoxRows * 128);
    __syncwarp();
    if (lane >= boxes) continue;
    const unsigned to = shared_address(memory.rows(ring.place)) + lane * kBoxRows * 128;
#pragma unroll
    for (int slice = 0; slice < 2; ++slice) {
      copy_box(to + slice * prefill_slice(kRows), &from.map, half * (kChunk / 2) + slice * 64,
               tile.first_row + lane * kBoxRows, full);
    }
  }
}

// One of kGathering warps that gather rows, and say what all need to know of a tile. kBoxes: the only one.
template <DType type, int kRows, bool kBoxes, int kGathering = prefill_gathering(kRows, kBoxes)>
__device__ __forceinline__ void prefill_gather(const PrefillArgs& args, const PrefillCut& cut, const RowBoxes& boxes,
                                               const PrefillMemory<type, kRows>& memory, int first) {
  auto& shared = memory.shared();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  PrefillTiles tiles{args, cut};
  Ring<prefill_halves(type, kRows)> ring;
  Ring<kPrefillTold> told;
#pragma unroll 1
  for (;; told.next()) {
    const PrefillTile tile = tiles.take(args.table);
    barrier_wait(&shared.done[told.place], told.parity ^ 1U);
    if (tile.list >= 0) {
#pragma unroll
      for (int i = 0; i * kGathering < kRows; i += kWarp) {
        const int row = (i + lane) / 8 * 8 * kGathering + 8 * first + lane % 8;
        TableSlot slot{-1, -1};
        if (row < tile.count) slot = slot_of(args.table, tile.list, tile.first_row + row);
        if (row >= kRows) continue;
        shared.slots[told.place][row] = slot;
        const auto from = static_cast<std::uint64_t>(slot.from < 0 ? 0 : slot.from);  // of no slot, any row
        shared.row_starts[prefill_start_place(row)] =
            static_cast<unsigned>(from * static_cast<std::uint64_t>(args.x_stride / 8));
      }
    }
    if (first == 0 && lane == 0) shared.tile[told.place] = tile;
    __syncwarp();  // lanes read each other's starts
    barrier_arrive(&shared.known[told.place]);
    if (tile.list < 0) break;
    if constexpr (kBoxes) {
      prefill_boxes<type, kRows>(args, tile, boxes, memory, ring, lane);
    } else {
#pragma unroll 1
      for (int half = 0; half < 2 * args.chunks; ++half, ring.next()) {
        barrier_wait(&shared.rows_empty[ring.place], ring.parity ^ 1U);
        copy_prefill_rows<kRows, kGathering>(shared_address(memory.rows(ring.place)), args.x + half * (kChunk / 2),
                                             shared.row_starts, first, tile.count, lane);
        barrier_arrive_with_copies(&shared.rows_full[ring.place]);
      }
    }
    __syncwarp();
  }
  end_copies();
  await_copies<0>();
}

// Where a warp that multiplies stands in the rings.
template <DType type, int kRows, int kWeightStages = prefill_weight_stages(type, kRows)>
struct PrefillRings {
  Ring<kWeightStages> weights;
  Ring<prefill_halves(type, kRows)> rows;
};

#endif

}  // namespace conclave::cuda
