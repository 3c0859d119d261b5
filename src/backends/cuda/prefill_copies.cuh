// How weights and rows get to where prefill_rows multiplies them.
#pragma once

#include "backends/cuda/prefill_tiles.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

// The columns of a tile that begins at place `first` of the output. Gate and up alternate every 8: of 16 columns of a
// warp, one lane has both. Where outputs become a bank, places are those of the bank.
struct PrefillColumnsOf {
  const PrefillArgs& args;
  const PrefillSide& side;
  int expert;
  int first;

  // Of column c of weights, or of its gate and up, in the output.
  __device__ __forceinline__ int place(int c) const { return first + (args.up != nullptr ? c / 16 * 8 + c % 8 : c); }
  // Columns past the last exist in banks.
  __device__ __forceinline__ int column(int place) const {
    return args.bank_out != nullptr ? place / kChunk * kChunk + bank_element(place % kChunk) : place;
  }
  // Past the last column it is the last again: computed and not used.
  __device__ __forceinline__ const std::byte* address(int c) const {
    const int named = column(place(c));
    const std::int64_t at = named < side.n ? named : side.n - 1;
    return args.up != nullptr && (c & 8) != 0 ? args.up + expert * args.up_expert + at * args.up_column
                                              : side.w + expert * side.w_expert + at * side.w_column;
  }
};

// Where column i of 32 begins, as copy_prefill_weights wants it.
template <DType type>
__device__ __forceinline__ const std::byte* prefill_start(const std::byte* column, int i) {
  return is_affine(type) ? column - i * block_bytes(type) : column;
}
// Superblock c of 32 columns to where it belongs: their place in the stage, `to`, and of q6_k's d, `d_to`. By a warp.
// Copies take a line of memory at a time: so neighbouring lanes have neighbouring 16-byte parts, of as few columns at
// once as can be. What is read of shared memory is read before the copies: between them each would wait.
template <DType type>
__device__ __forceinline__ void copy_prefill_weights(unsigned to, unsigned d_to, const std::byte* const* starts, int c,
                                                     const PrefillArgs& args, int lane) {
  constexpr int kStride = prefill_column_stride(type);
  if constexpr (is_affine(type)) {
    constexpr int kParts = block_bytes(type) / 16;
    const std::byte* from[kParts];
#pragma unroll
    for (int i = 0; i < kParts; ++i) from[i] = starts[(lane + kWarp * i) / kParts];
    const std::int64_t offset = c * block_bytes(type) + 16 * lane;
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      copy_16_of_many(to + 16 * lane + 16 * kWarp * i, from[i] + offset + 16 * kWarp * i);
    }
  } else if constexpr (is_block_32(type)) {
    // Scales, then levels. Where the row ends, what was there before is multiplied by zeros.
    constexpr int kParts = level_bytes(type) / 2;
    const Planes32 planes{type, args.k / 32};
    const int part = c * kParts + lane % kParts;
    if (part < args.k / 32 * (level_bytes(type) / 16)) {
#pragma unroll 1
      for (int first = 0; first < kParts; first += 8) {
        const int column = kWarp / kParts * first + lane / kParts;
        const std::byte* from[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) from[i] = starts[column + kWarp / kParts * i];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          copy_16_of_many(to + (column + kWarp / kParts * i) * kStride + 16 + 16 * (lane % kParts),
                          from[i] + 16 * std::int64_t{part});
        }
      }
    }
    const std::byte* scales = starts[lane] + planes.scales(8 * c);
    if constexpr (scale_bytes(type) == 2) {
      copy_16(to + lane * kStride, scales);
    } else {
      copy_8(to + lane * kStride, scales);
    }
  } else {
    const PlanesQ6K planes{args.chunks};
    const std::byte* from[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) from[i] = starts[4 * i + lane / 8];
    const std::int64_t ql = planes.ql(c) + 16 * (lane % 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      copy_16_of_many(to + (4 * i + lane / 8) * kStride + 16 * (lane % 8), from[i] + ql);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) from[i] = starts[8 * i + lane / 4];
    const std::byte* mine = starts[lane];
    const std::int64_t qh = planes.qh(c) + 16 * (lane % 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      copy_16_of_many(to + (8 * i + lane / 4) * kStride + 128 + 16 * (lane % 4), from[i] + qh);
    }
    copy_16(to + lane * kStride + 192, mine + planes.scales(c));
    // The column goes on for whole 16-byte words.
    copy_4(d_to + 4 * lane, mine + planes.d(c & ~1));
  }
}

// Where the start of a row of a tile is kept: those of four rows that a lane copies side by side.
__device__ __forceinline__ int prefill_start_place(int row) {
  return row / 8 * 8 + row % 2 * 4 + row % 8 / 2;
}
// Half a superblock of a tile's rows, whose starts are kept as 16-byte parts of x: part p of 64 of k at place
// p ^ row % 8. By one of the warps that gather, eight rows at a time; the next ones' starts are read ahead.
template <int kRows, int kGathering>
__device__ __forceinline__ void copy_prefill_rows(unsigned to, const std::uint16_t* x, const unsigned* starts,
                                                  int first, int count, int lane) {
  constexpr int kStep = 8 * kGathering;
  const int part = lane % 16;
  const int second = lane / 16;  // of two rows at once
  const std::byte* from = reinterpret_cast<const std::byte*>(x) + 16 * part;
  unsigned places[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = 2 * i + second;
    places[i] = to + part / 8 * prefill_slice(kRows) + (8 * first + row) * 128 + ((part ^ row) & 7) * 16;
  }
  const auto four_at = [&](int eight) {
    return *reinterpret_cast<const uint4*>(starts + (eight < kRows ? eight : 0) + 4 * second);
  };
  uint4 next = four_at(8 * first);
#pragma unroll 1
  for (int eight = 8 * first; eight < count; eight += kStep) {
    const unsigned start[4] = {next.x, next.y, next.z, next.w};
    next = four_at(eight + kStep);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      copy_16(places[i], from + std::uint64_t{start[i]} * 16);
      places[i] += kStep * 128;
    }
  }
}

}  // namespace conclave::cuda
