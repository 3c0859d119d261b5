// What few_rows brings to shared memory: tiles of weights, and rows as int8.
#pragma once

#include "backends/cuda/active_lists.cuh"
#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/lane_product.cuh"
#include "backends/cuda/quantize.cuh"
#include "backends/cuda/unit_copy.cuh"
#include "backends/cuda/unit_output.cuh"

namespace conclave::cuda {

using FewColumns = UnitColumns<kTile / 2>;

// A warp's tiles on their way to its ring. Two lanes copy a column, 16 bytes each in turn.
template <DType type>
struct Fetcher {
  const std::byte* base;    // the column's matrix
  std::int64_t stride;      // from column to column
  const std::byte* column;  // of the tile in work
  const std::byte* from;    // its next superblock
  int offset;               // of the lane's column in a tile
  int c0;                   // the first superblock of a tile, and from one to the next
  int c_step;
  int c;
  int tile;
  int tile_step;
  int end_tile;
  unsigned ring;    // the lane's place in it
  unsigned at = 0;  // the tile to fill next, in bytes: at a step's end, the one that it has multiplied

  __device__ __forceinline__ Fetcher(const UnitArgs& args, const std::byte* to, int first_chunk, int chunk_step,
                                     int step)
      : c0(first_chunk), c_step(chunk_step), tile_step(step) {
    const int of = threadIdx.x % kWarp / 2;
    offset = args.up != nullptr ? of % (kTile / 2) : of;
    ring = shared_address(to) + of * column_stride(type) + 16 * (threadIdx.x % 2);
  }

  __device__ __forceinline__ void find_column(const UnitArgs& args) {
    const int at_column = min(tile * few_columns(args.up != nullptr) + offset, args.n - 1);
    column = base + at_column * stride;
    if constexpr (is_affine(type)) from = column + c * block_bytes(type);
  }
  // Tiles first, first + tile_step, ... before `end` of an expert.
  __device__ __forceinline__ void start(const UnitArgs& args, int expert, int first, int end) {
    const bool up = args.up != nullptr && threadIdx.x % kWarp / 2 >= kTile / 2;
    base = up ? args.up + expert * args.up_expert : args.w + expert * args.w_expert;
    stride = up ? args.up_column : args.w_column;
    c = c0;
    tile = first;
    end_tile = end;
    advance();  // others may still read that one
    find_column(args);
#pragma unroll
    for (int i = 0; i < tiles_ahead(type); ++i) fetch(args);
  }
  // The next superblock of the next tile. Every step has its group of copies, be it empty.
  __device__ __forceinline__ void fetch(const UnitArgs& args) {
    if (tile < end_tile) {  // the same for a warp
      copy_unit<type>(ring + at, column, from, c, args.chunks);
      c += c_step;
      if constexpr (is_affine(type)) from += c_step * block_bytes(type);
      if (c >= args.chunks) {
        c = c0;
        tile += tile_step;
        find_column(args);
      }
    }
    end_copies();
    advance();
  }
  __device__ __forceinline__ void advance() {
    at = at + tile_bytes(type) == few_ring_bytes(type) ? 0 : at + tile_bytes(type);
  }
};

// Rows in shared memory: those of superblock `slot` of a segment.
struct StagedRows {
  std::byte* q;
  std::byte* sums;  // [slot][row][16]
  float* scale;     // [slot][row]
};
struct RowPlace {
  int r;
  int slot;
  int c;
};

// Superblock c of a row from the bank, by a warp; it is there when its copies are.
template <DType type>
__device__ __forceinline__ void copy_row(const UnitArgs& args, int from, const RowPlace& at, const StagedRows& to) {
  const int lane = threadIdx.x % kWarp;
  const int place = at.slot * 2 * kRowTile + at.r;
  const std::int64_t taken = std::int64_t{max(from, 0)} * args.chunks + at.c;
  LaneWeights<type>::copy(to.q + at.r * kFewRowStride + at.slot * kChunk, lane, args.q + taken * kChunk + 8 * lane);
  if (is_affine(type) && lane < kFewSumBytes / 4) {
    copy_4(to.sums + place * kFewSumBytes + 4 * lane, args.sums + taken * 16 + 2 * lane);
  }
  if (lane == kWarp - 1) copy_4(to.scale + place, args.scale + taken);
}
// The same, made here.
template <DType type>
__device__ __forceinline__ void make_row(const UnitArgs& args, int from, const RowPlace& at, const StagedRows& to) {
  const int lane = threadIdx.x % kWarp;
  const int place = at.slot * 2 * kRowTile + at.r;
  float v[8];
  load_chunk(args.x_type, args.x + max(from, 0) * args.x_stride, at.c, std::int64_t{args.chunks} * kChunk, lane, v);
  const QuantizedLane made = quantize_lane(v);
  LaneWeights<type>::put(to.q + at.r * kFewRowStride + at.slot * kChunk, lane, made.low, made.high);
  if constexpr (is_affine(type)) {
    const int sum = sum_of_two(made);
    if (lane % 2 == 0) {
      reinterpret_cast<std::uint16_t*>(to.sums + place * kFewSumBytes)[lane / 2] = __half_as_ushort(__int2half_rn(sum));
    }
  }
  if (lane == 0) to.scale[place] = made.scale;
}
// `n` of them, the i-th as `where(i)` says.
template <DType type, class Where>
__device__ __forceinline__ void stage_rows(const UnitArgs& args, const TableSlot* slots, int n, const StagedRows& to,
                                           Where&& where) {
#pragma unroll 1
  for (int i = 0; i < n; ++i) {
    const RowPlace at = where(i);
    if (args.q != nullptr) {
      copy_row<type>(args, slots[at.r].from, at, to);
    } else {
      make_row<type>(args, slots[at.r].from, at, to);
    }
  }
  end_copies();
  await_copies<0>();
}

}  // namespace conclave::cuda
