// What few_rows brings to shared memory: tiles of weights, and rows as int8.
#pragma once

#include "backends/cuda/active_lists.cuh"
#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/lane_product.cuh"
#include "backends/cuda/quantize.cuh"
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
      copy(args.chunks);
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
  __device__ __forceinline__ void copy(int chunks) const {
    const bool second = threadIdx.x % 2 != 0;
    if constexpr (is_affine(type)) {
      // An odd number of words. Pairs that the two lanes copy lie in one piece of 32 bytes of memory each, so the block
      // begins with the second word of the first pair or ends with the first of the last.
      constexpr int kPairs = (block_bytes(type) / 16 + 1) / 2;
      const auto place = reinterpret_cast<std::uintptr_t>(from);
      const unsigned shift = static_cast<unsigned>(place) & 16U;
      const auto* source = reinterpret_cast<const std::byte*>((place & ~std::uintptr_t{16}) | (second ? 16U : 0U));
      const unsigned to = ring + at - shift;
      if (second || shift == 0) copy_16(to, source);
#pragma unroll
      for (int j = 1; j < kPairs - 1; ++j) copy_16(to + 32 * j, source + 32 * j);
      if (!second || shift != 0) copy_16(to + 32 * (kPairs - 1), source + 32 * (kPairs - 1));
    } else {
      const unsigned to = ring + at;
      const std::byte* mine = column + (second ? 16 : 0);
      const std::byte* ql = mine + 128 * c;
      const std::byte* qh = mine + (128 * chunks + 64 * c);
#pragma unroll
      for (int j = 0; j < 4; ++j) copy_16(to + 32 * j, ql + 32 * j);
#pragma unroll
      for (int j = 0; j < 2; ++j) copy_16(to + 128 + 32 * j, qh + 32 * j);
      // One lane copies the scales, the other the word with the factor.
      const unsigned of = threadIdx.x % kWarp / 2;
      const unsigned last = second ? kTile * column_stride(type) + 16 * of - (of * column_stride(type) + 16) : 192;
      copy_16(to + last, column + (second ? 208 * chunks + c / 8 * 16 : 192 * chunks + 16 * c));
    }
  }
};

// Superblock c of a row, made here or taken from the bank, by a warp.
struct RowChunk {
  QuantizedLane q;
  std::uint16_t sum;  // of the 16 values that a lane has with its neighbour, as f16
};
template <DType type>
__device__ __forceinline__ RowChunk chunk_of_bank(const UnitArgs& args, int from, int c) {
  const int lane = threadIdx.x % kWarp;
  const std::int64_t place = std::int64_t{max(from, 0)} * args.chunks + c;
  const int2 words = reinterpret_cast<const int2*>(args.q + place * kChunk)[lane];
  RowChunk taken{{words.x, words.y, args.scale[place]}, 0};
  if constexpr (is_affine(type)) taken.sum = args.sums[place * 16 + lane / 2];
  return taken;
}
template <DType type>
__device__ __forceinline__ RowChunk row_chunk(const UnitArgs& args, int from, int c) {
  if (args.q != nullptr) return chunk_of_bank<type>(args, from, c);
  float v[8];
  load_chunk(args.x_type, args.x + max(from, 0) * args.x_stride, c, std::int64_t{args.chunks} * kChunk,
             static_cast<int>(threadIdx.x % kWarp), v);
  RowChunk made{quantize_lane(v), 0};
  if constexpr (is_affine(type)) {
    const int sum = __dp4a(made.q.low, 0x01010101, __dp4a(made.q.high, 0x01010101, 0));
    made.sum = __half_as_ushort(__int2half_rn(sum + __shfl_xor_sync(kAllLanes, sum, 1)));
  }
  return made;
}

// Rows in shared memory: those of superblock `slot` of a segment.
struct StagedRows {
  std::byte* q;
  std::byte* sums;  // [slot][row][16]
  float* scale;     // [slot][row]

  template <DType type>
  __device__ __forceinline__ void put(int slot, int r, const RowChunk& made) const {
    const int lane = threadIdx.x % kWarp;
    const int place = slot * 2 * kRowTile + r;
    LaneWeights<type>::put(q + r * kFewRowStride + slot * kChunk, lane, made.q.low, made.q.high);
    if constexpr (is_affine(type)) {
      if (lane % 2 == 0) reinterpret_cast<std::uint16_t*>(sums + place * kFewSumBytes)[lane / 2] = made.sum;
    }
    if (lane == 0) scale[place] = made.q.scale;
  }
};

// Superblocks first .. first + count - 1 of the rows, by all warps of a block.
template <DType type>
__device__ __forceinline__ void stage_all(const UnitArgs& args, const TableSlot* slots, int n_rows, int first,
                                          int count, const StagedRows& to) {
  constexpr int kAtOnce = 4;  // asked for before any is waited for
  const int n = n_rows * count;
  const int inverse = 65536 / count + 1;
  const auto row_of_pair = [&](int p) { return p * inverse >> 16; };  // p / count: exact for so few
  const int warp = threadIdx.x / kWarp;
  if (args.q == nullptr) {
#pragma unroll 1
    for (int p = warp; p < n; p += kFewWarps) {
      const int r = row_of_pair(p);
      to.put<type>(p - r * count, r, row_chunk<type>(args, slots[r].from, first + p - r * count));
    }
    return;
  }
#pragma unroll 1
  for (int p = warp; p < n; p += kAtOnce * kFewWarps) {
    RowChunk taken[kAtOnce];
    int r[kAtOnce];
    int k[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int pair = min(p + i * kFewWarps, n - 1);  // the last again: the same bytes
      r[i] = row_of_pair(pair);
      k[i] = pair - r[i] * count;
      taken[i] = chunk_of_bank<type>(args, slots[r[i]].from, first + k[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) to.put<type>(k[i], r[i], taken[i]);
  }
}

}  // namespace conclave::cuda
