// One superblock of 32 columns times 8 NT rows, by a warp, on the int8 tensor cores: tiles of 16 columns by 8 rows. Lane
// l has columns l / 4 and l / 4 + 8 of a tile, and rows 2 (l % 4) and 2 (l % 4) + 1: element i is column l / 4 + 8 (i / 2),
// row 2 (l % 4) + i % 2.
//
//   q4_k q5_k   eight products of depth 32 a tile, each times its group's scale
//   q6_k        sixteen of depth 16
//
// Minimums are one product of depth 16 in f16 with the sums of 16 activations: integers below 2048 are exact there, and
// the sum in f32 stays below 2^24.
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/levels.cuh"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/view.h"

namespace conclave::cuda {

inline constexpr int kTiles = 2;  // of 16 columns, of a warp

// Where a superblock's columns lie in shared memory: its parts `stride` bytes from column to column.
template <DType type>
struct ChunkColumns {  // q4_k, q5_k: the blocks as stored
  const std::byte* block;
  int stride;
};
template <>
struct ChunkColumns<DType::q6_k> {
  const std::byte* ql;
  const std::byte* qh;
  const std::byte* scales;
  const std::byte* d;
  int stride;
};

// Rows of 256 int8, and the sums of their sixteenths as f16, in shared memory.
struct ChunkRows {
  const std::byte* q;
  int stride;
  const std::byte* sums;
  int sum_stride;
};

__device__ __forceinline__ unsigned word_from(const std::byte* p) {
  return *reinterpret_cast<const unsigned*>(p);
}

// The integer sums over all groups, scaled. `column`: the first of the warp's 32; `row`: the first of its 8 NT. With one
// tile of rows the loops stay loops: a kernel that runs once through its code waits for the code.
template <int NT, DType type>
__device__ __forceinline__ void chunk_sums(const ChunkColumns<type>& w, int column, const ChunkRows& rows, int row,
                                           int (&sum)[kTiles][NT][4]) {
  const int lane = threadIdx.x % kWarp;
  const std::byte* mine = w.block + (column + lane / 4) * w.stride;
  const std::byte* x_row = rows.q + (row + lane % 8) * rows.stride + 16 * (lane / 8);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][n][i] = 0;
    }
  }
#pragma unroll(NT == 1 ? 1 : 4)
  for (int j = 0; j < 4; ++j) {  // bytes 32 j: groups 2 j and 2 j + 1
    unsigned x[NT][4];
#pragma unroll
    for (int n = 0; n < NT; ++n) load_tiles(x[n], x_row + 8 * n * rows.stride + 64 * j);
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      unsigned packed[4];
      unsigned fifth[4];  // q5_k: bit g of each byte is of group g
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::byte* from = mine + (16 * m + 8 * (i % 2)) * w.stride + 16 * (i / 2) + 4 * (lane % 4);
        packed[i] = word_from(from + (type == DType::q5_k ? 48 : 16) + 32 * j);
        if constexpr (type == DType::q5_k) fifth[i] = word_from(from + 16) >> 2 * j;
      }
      // Two scales of each of the two columns: bytes 2 (j % 2) on of a word (src/quant/k_scales.h).
      unsigned scales[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::byte* head = mine + (16 * m + 8 * half) * w.stride;
        const unsigned low = word_from(head + 4) >> 16 * (j % 2);
        scales[half] = j < 2 ? low & 0x3F3FU : (word_from(head + 12) >> 16 * (j % 2) & 0x0F0FU) | (low >> 2 & 0x3030U);
      }
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        unsigned levels[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          levels[i] = packed[i] >> 4 * group & 0x0F0F0F0FU;
          if constexpr (type == DType::q5_k) levels[i] |= (fifth[i] >> group & 0x01010101U) << 4;
        }
        const int s0 = static_cast<int>(scales[0] >> 8 * group & 0xFFU);
        const int s1 = static_cast<int>(scales[1] >> 8 * group & 0xFFU);
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          int dot[4];
          mma_s8_k32(dot, levels, x[n][2 * group], x[n][2 * group + 1]);
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[m][n][i] += dot[i] * (i < 2 ? s0 : s1);
        }
      }
    }
  }
}

template <int NT>
__device__ __forceinline__ void chunk_sums(const ChunkColumns<DType::q6_k>& w, int column, const ChunkRows& rows,
                                           int row, int (&sum)[kTiles][NT][4]) {
  const int lane = threadIdx.x % kWarp;
  const int first = (column + lane / 4) * w.stride;
  // Of one tile of rows: groups 8h + v and 8h + 4 + v, in two tiles of 16 bytes each; of two, of both.
  constexpr int kPair = NT > 1 ? 2 : 1;
  const std::byte* x_row =
      rows.q + (row + lane % 8 + (NT > 1 ? 8 * (lane / 16) : 0)) * rows.stride + 64 * (lane / 8 % 2);
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < NT; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[m][n][i] = 0;
    }
  }
#pragma unroll(NT == 1 ? 1 : 8)
  for (int hv = 0; hv < 8; ++hv) {  // bytes 16 hv: v of half h
    const int h = hv / 4;
    const int v = hv % 4;
    unsigned x[NT][2];
#pragma unroll
    for (int pair = 0; pair < NT / kPair; ++pair) {
      unsigned tiles[4];
      load_tiles(tiles, x_row + 16 * pair * rows.stride + 128 * h + 16 * v);
#pragma unroll
      for (int n = 0; n < kPair; ++n) {
        x[kPair * pair + n][0] = tiles[2 * n];
        x[kPair * pair + n][1] = tiles[2 * n + 1];
      }
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      unsigned levels[2][2];  // [group][column]
      int scale[2][2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = first + (16 * m + 8 * half) * w.stride;
        const unsigned low = word_from(w.ql + at + 16 * hv + 4 * (lane % 4));
        const unsigned bits = word_from(w.qh + at + 32 * h + 16 * (v % 2) + 4 * (lane % 4)) >> 2 * (v / 2);
        levels[0][half] = static_cast<unsigned>(less((low & 0x0F0F0F0FU) | (bits & 0x03030303U) << 4, 32));
        levels[1][half] = static_cast<unsigned>(less((low >> 4 & 0x0F0F0F0FU) | (bits & 0x30303030U), 32));
        const auto* scales = reinterpret_cast<const std::int8_t*>(w.scales + at);
        scale[0][half] = scales[8 * h + v];
        scale[1][half] = scales[8 * h + 4 + v];
      }
#pragma unroll
      for (int group = 0; group < 2; ++group) {
#pragma unroll
        for (int n = 0; n < NT; ++n) {
          int dot[4];
          mma_s8_k16(dot, levels[group][0], levels[group][1], x[n][group]);
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[m][n][i] += dot[i] * scale[group][i / 2];
        }
      }
    }
  }
}

__device__ __forceinline__ unsigned doubled_half(unsigned x) {
  return unsigned{__half_as_ushort(__uint2half_rn(x))} * 0x00010001U;
}

// Of tile m: what multiplies the minimums' sums, as the left operand of mma_f16_k16.
template <DType type>
__device__ __forceinline__ void chunk_mins(const ChunkColumns<type>& w, int column, int m, unsigned* mins) {
  const int lane = threadIdx.x % kWarp;
  const int shift = 8 * (lane % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::byte* head = w.block + (column + 16 * m + 8 * half + lane / 4) * w.stride;
    const unsigned z = word_from(head + 8);
    const unsigned high = (word_from(head + 12) >> 4 & 0x0F0F0F0FU) | (z >> 2 & 0x30303030U);
    mins[half] = doubled_half(z >> shift & 0x3FU);
    mins[2 + half] = doubled_half(high >> shift & 0xFFU);
  }
}
// The minimums' sums of tile m and one tile of rows.
__device__ __forceinline__ void min_sums(const unsigned* mins, const ChunkRows& rows, int row, float* low) {
  const int lane = threadIdx.x % kWarp;
  const std::byte* sums = rows.sums + (row + lane / 4) * rows.sum_stride + 4 * (lane % 4);
  mma_f16_k16(low, mins, word_from(sums), word_from(sums + 16));
}

// The superblock's factors of column `c`.
template <DType type>
__device__ __forceinline__ float factor(const ChunkColumns<type>& w, int c) {
  return __half2float(*reinterpret_cast<const __half*>(w.block + c * w.stride));
}
template <DType type>
__device__ __forceinline__ float min_factor(const ChunkColumns<type>& w, int c) {
  return __half2float(reinterpret_cast<const __half*>(w.block + c * w.stride)[1]);
}
__device__ __forceinline__ float factor(const ChunkColumns<DType::q6_k>& w, int c) {
  return __half2float(*reinterpret_cast<const __half*>(w.d + c * w.stride));
}

}  // namespace conclave::cuda
