// One superblock of 16 columns times 8 rows, by a warp, on the int8 tensor cores, from shared memory. Lane l has columns
// l / 4 and l / 4 + 8, and of the result rows 2 (l % 4) and 2 (l % 4) + 1: element i is column l / 4 + 8 (i / 2), row
// 2 (l % 4) + i % 2. Which 64 of the 256 weights of its columns a lane has is free, since sums of integers have no order: it
// is what the format keeps together.
//
//   q4_k q5_k   lane l has groups 2 (l % 4) and 2 (l % 4) + 1, whole. A product of depth 32 then mixes groups, so scales
//               are multiplied into the weights before it, in two digits that fit 8 bits with any level: s = 8 h + l
//   q6_k        quarter l % 4 of each group; sixteen products of depth 16, each times its scale
//
// Columns lie kColumnBytes apart: the stored block, or ql, qh and scales of its planes, with the words around the factors
// behind all columns.
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

__device__ __forceinline__ uint4 load_16(const std::byte* p) {
  return *reinterpret_cast<const uint4*>(p);
}
__device__ __forceinline__ unsigned load_4(const std::byte* p) {
  return *reinterpret_cast<const unsigned*>(p);
}
__device__ __forceinline__ void spread(const uint4& v, unsigned* to) {
  to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

// A lane's part of a superblock of its two columns.
template <DType type>
struct LaneWeights {
  static constexpr int kColumnBytes = block_bytes(type);
  uint4 head[2];     // d, dmin, scales and minimums
  unsigned q[2][8];  // 32 bytes: both groups' low four bits
  unsigned fifth[2][type == DType::q5_k ? 8 : 1];

  __device__ __forceinline__ LaneWeights(const std::byte* columns, int /*chunk*/) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::byte* block = columns + (threadIdx.x % kWarp / 4 + 8 * half) * kColumnBytes;
      head[half] = load_16(block);
      const std::byte* low = block + (type == DType::q5_k ? 48 : 16) + 32 * t;
      spread(load_16(low), q[half]);
      spread(load_16(low + 16), q[half] + 4);
      if constexpr (type == DType::q5_k) {
        spread(load_16(block + 16), fifth[half]);
        spread(load_16(block + 32), fifth[half] + 4);
      }
    }
  }
  __device__ __forceinline__ float d(int half) const {
    return __half2float(__ushort_as_half(static_cast<std::uint16_t>(head[half].x)));
  }
  __device__ __forceinline__ float dmin(int half) const {
    return __half2float(__ushort_as_half(static_cast<std::uint16_t>(head[half].x >> 16)));
  }

  // Byte b of a row's superblock lies at place(b) in shared memory, rows kRowStride apart, so that lanes do not meet in a
  // bank. Rows past the last may be anything: no other row sees them.
  static constexpr int kRowStride = 320;
  static __device__ __forceinline__ int place(int b) {
    return b + b / 64 * 16;
  }

  // The sums of levels times scales, and of minimums, for eight rows of int8.
  __device__ __forceinline__ void multiply(const std::byte* rows, int (&sum)[4], int (&low)[4]) const {
    const int t = threadIdx.x % 4;
    const std::byte* row = rows + threadIdx.x % kWarp / 4 * kRowStride + place(64 * t);
    // The scales and minimums of two groups, side by side in 16 bits (src/quant/k_scales.h).
    unsigned scales[2];
    unsigned mins[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned s = head[half].y >> 16 * (t % 2);
      const unsigned m = head[half].z >> 16 * (t % 2);
      const unsigned both = head[half].w >> 16 * (t % 2);
      scales[half] = t < 2 ? s & 0x3F3FU : (both & 0x0F0FU) | (s >> 2 & 0x3030U);
      mins[half] = t < 2 ? m & 0x3F3FU : (both >> 4 & 0x0F0FU) | (m >> 2 & 0x3030U);
    }
    int high_digit[4] = {};
    int low_digit[4] = {};
#pragma unroll
    for (int i = 0; i < 4; ++i) low[i] = 0;
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      unsigned high_scale[2];
      unsigned low_scale[2];
      unsigned min[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned s = scales[half] >> 8 * group & 0xFFU;
        high_scale[half] = s >> 3;
        low_scale[half] = s & 7U;
        min[half] = (mins[half] >> 8 * group & 0xFFU) * 0x01010101U;
      }
      const unsigned all_mins[4] = {min[0], min[1], min[0], min[1]};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        unsigned high_part[4];
        unsigned low_part[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          unsigned level = q[j % 2][2 * i + j / 2] >> 4 * group & 0x0F0F0F0FU;
          if constexpr (type == DType::q5_k)
            level |= (fifth[j % 2][2 * i + j / 2] >> (2 * t + group) & 0x01010101U) << 4;
          high_part[j] = level * high_scale[j % 2];
          low_part[j] = level * low_scale[j % 2];
        }
        const uint2 x = *reinterpret_cast<const uint2*>(row + 32 * group + 8 * i);
        add_mma_u8_k32(high_digit, high_part, x.x, x.y);
        add_mma_u8_k32(low_digit, low_part, x.x, x.y);
        add_mma_u8_k32(low, all_mins, x.x, x.y);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = 8 * high_digit[i] + low_digit[i];
  }
};

template <>
struct LaneWeights<DType::q6_k> {
  static constexpr int kColumnBytes = 208;
  unsigned ql[2][8];
  unsigned qh[2][4];
  uint4 scales[2];
  std::uint16_t factor[2];

  // `chunk`: which superblock of its columns it is; the words with the factors are those of eight.
  __device__ __forceinline__ LaneWeights(const std::byte* columns, int chunk) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int c = threadIdx.x % kWarp / 4 + 8 * half;
      const std::byte* block = columns + c * kColumnBytes;
#pragma unroll
      for (int i = 0; i < 8; ++i) ql[half][i] = load_4(block + 16 * i + 4 * t);
#pragma unroll
      for (int i = 0; i < 4; ++i) qh[half][i] = load_4(block + 128 + 16 * i + 4 * t);
      scales[half] = load_16(block + 192);
      factor[half] = reinterpret_cast<const std::uint16_t*>(columns + kTile * kColumnBytes + 16 * c)[chunk % 8];
    }
  }
  __device__ __forceinline__ float d(int half) const {
    return __half2float(__ushort_as_half(factor[half]));
  }

  static constexpr int kRowStride = 272;
  static __device__ __forceinline__ int place(int b) {
    return b;
  }

  // A byte is 4 (level - 32): four bits of ql, two of qh above them, and the sign turned round.
  __device__ __forceinline__ void multiply(const std::byte* rows, int (&sum)[4], int (&)[4]) const {
    const std::byte* row = rows + threadIdx.x % kWarp / 4 * kRowStride + 4 * (threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = 0;
#pragma unroll
    for (int hv = 0; hv < 8; ++hv) {  // bytes 16 hv of ql: groups 8h + v and 8h + 4 + v
      const int h = hv / 4;
      const int v = hv % 4;
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int group = 8 * h + 4 * upper + v;
        unsigned level[2];
        int scale[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const unsigned low = upper == 0 ? ql[half][hv] << 2 : ql[half][hv] >> 2;
          const unsigned high = qh[half][2 * h + v % 2] << (6 - 2 * (v / 2) - 4 * upper);
          level[half] = ((low & 0x3C3C3C3CU) ^ 0x80808080U) ^ (high & 0xC0C0C0C0U);
          const unsigned word = group / 4 == 0   ? scales[half].x
                                : group / 4 == 1 ? scales[half].y
                                : group / 4 == 2 ? scales[half].z
                                                 : scales[half].w;
          scale[half] = static_cast<int>(word << (24 - 8 * (group % 4))) >> 24;
        }
        int dot[4];
        mma_s8_k16(dot, level[0], level[1], *reinterpret_cast<const unsigned*>(row + 16 * group));
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += dot[i] * scale[i / 2];
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] >>= 2;  // exact: every term is a multiple of 4
  }
};

}  // namespace conclave::cuda
