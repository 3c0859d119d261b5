// One superblock of 16 columns times one or two tiles of 8 rows, by a warp, on the int8 tensor cores, from shared
// memory. Lane l has places l / 4 and l / 4 + 8, and of the result rows 2 (l % 4) and 2 (l % 4) + 1 of each tile:
// element i is place l / 4 + 8 (i / 2), row 2 (l % 4) + i % 2. Products are of a group of weights each, and times its
// scale. Which weights of a group a lane has is free, since sums of integers have no order: they lie together.
//
//   q4_k q5_k   8 groups of 32: lane t of four has weights 8 t .. 8 t + 7
//   q6_k        16 groups of 16: weights 4 t .. 4 t + 3
//
// Places of columns are column_stride() apart. In each is the stored block, or ql, qh and scales of its planes, with
// the words around the factors behind all columns.
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/mma.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

__device__ __forceinline__ uint4 load_16(const std::byte* p) {
  return *reinterpret_cast<const uint4*>(p);
}
__device__ __forceinline__ uint2 load_8(const std::byte* p) {
  return *reinterpret_cast<const uint2*>(p);
}
__device__ __forceinline__ unsigned load_4(const std::byte* p) {
  return *reinterpret_cast<const unsigned*>(p);
}
__device__ __forceinline__ float half_bits(unsigned bits) {
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(bits)));
}

// Two halves, each 1024 more than a number below 256 that its lower byte says.
__device__ __forceinline__ unsigned small_halves(unsigned bits) {
  const __half2 more = __halves2half2(__ushort_as_half(0x6400), __ushort_as_half(0x6400));
  const __half2 less = __hsub2(*reinterpret_cast<const __half2*>(&bits), more);
  return *reinterpret_cast<const unsigned*>(&less);
}

// The scales of groups 0 to 3 and 4 to 7, a byte each, from the 16 bytes before a block's levels
// (src/quant/k_scales.h).
__device__ __forceinline__ void group_scales(const uint4& head, unsigned (&scales)[2]) {
  scales[0] = head.y & 0x3F3F3F3FU;
  scales[1] = (head.w & 0x0F0F0F0FU) | (head.y >> 2 & 0x30303030U);
}
// The minimums of a column's groups 2 t and 2 t + 1 as halves, each for both of its sums.
__device__ __forceinline__ void group_mins(const uint4& head, int t, unsigned& even, unsigned& odd) {
  const unsigned m = head.z >> 16 * (t % 2);
  const unsigned high = head.w >> 16 * (t % 2) >> 4;
  const unsigned two = t < 2 ? m & 0x3F3FU : (high & 0x0F0FU) | (m >> 2 & 0x3030U);
  even = small_halves(__byte_perm(two, 0x64, 0x4040));
  odd = small_halves(__byte_perm(two, 0x64, 0x4141));
}
// A lane's levels of a group: of q4_k in odd groups, 16 times the levels. `bytes`: the first four of both columns, then
// the others.
template <DType type>
__device__ __forceinline__ void group_levels(int group, const unsigned (&bytes)[4], const uint2 (&fifth)[2],
                                             unsigned (&level)[4]) {
  const int upper = group % 2;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (type == DType::q5_k) {
      const unsigned bits = j < 2 ? fifth[j % 2].x : fifth[j % 2].y;
      level[j] = (bytes[j] >> 4 * upper & 0x0F0F0F0FU) |
                 ((group < 4 ? bits << (4 - group) : bits >> (group - 4)) & 0x10101010U);
    } else {
      level[j] = bytes[j] & (upper == 0 ? 0x0F0F0F0FU : 0xF0F0F0F0U);
    }
  }
}
// Four of q6_k, each as 4 (level - 32): four bits of ql, two of qh above them, and the sign turned round. Of group
// 4 run + v; `ql` and `qh` are the words that hold them.
__device__ __forceinline__ unsigned levels_q6_k(unsigned ql, unsigned qh, int run, int v) {
  const int upper = run % 2;
  const unsigned low = upper == 0 ? ql << 2 : ql >> 2;
  const unsigned high = qh << (6 - 2 * (v / 2) - 4 * upper);
  return ((low & 0x3C3C3C3CU) ^ 0x80808080U) ^ (high & 0xC0C0C0C0U);
}
// The scale of group `group` of 16, of scales in a word.
__device__ __forceinline__ int scale_q6_k(const uint4& scales, int group) {
  const unsigned word = group < 4 ? scales.x : group < 8 ? scales.y : group < 12 ? scales.z : scales.w;
  const int v = group % 4;
  return v == 0   ? signed_byte<0>(word)
         : v == 1 ? signed_byte<1>(word)
         : v == 2 ? signed_byte<2>(word)
                  : signed_byte<3>(word);
}

// How many bytes further round the words of a column lie in place `of` of a tile: 16 where halves of 32 bytes would
// change places, else none.
__device__ __forceinline__ unsigned turned_q6_k(const std::byte* column, unsigned of) {
  static_assert(column_stride(DType::q6_k) % 32 == 16);
  return (static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(column)) ^ 16 * of) & 16;
}

// A lane's part of a superblock of its two columns.
template <DType type>
struct LaneWeights {
  const std::byte* column[2];  // its quarter of their low four bits, but for 32 bytes a pair of groups
  uint4 head[2];               // d, dmin, scales and minimums

  __device__ __forceinline__ LaneWeights(const std::byte* first, const std::byte* second)
      : column{first + 16 + 8 * (threadIdx.x % 4), second + 16 + 8 * (threadIdx.x % 4)},
        head{load_16(first), load_16(second)} {}
  __device__ __forceinline__ float d(int half) const { return half_bits(head[half].x); }
  __device__ __forceinline__ float dmin(int half) const { return half_bits(head[half].x >> 16); }

  // Eight values from 8 i of a row's superblock, in runs of 64: lane t has 16 bytes of each, 8 of either group.
  static __device__ __forceinline__ std::byte* place(std::byte* to, int i) {
    return to + i / 8 * 64 + 16 * (i % 4) + 8 * (i / 4 % 2);
  }
  static __device__ __forceinline__ void put(std::byte* to, int i, int low, int high) {
    *reinterpret_cast<int2*>(place(to, i)) = make_int2(low, high);
  }
  static __device__ __forceinline__ void copy(std::byte* to, int i, const std::int8_t* from) {
    copy_8(place(to, i), from);
  }

  // The sums of levels times scales. `row`: the lane's 16 bytes of the superblock of the first tile's row l / 4, rows
  // being kRowStride apart. Where there is no such row it may be anything: no other row sees it.
  template <int kTiles, int kRowStride>
  __device__ __forceinline__ void multiply(const std::byte* row, int (&sum)[kTiles][4]) const {
    constexpr int kLow = type == DType::q5_k ? 32 : 0;
    unsigned scales[2][2];
    uint2 fifth[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      group_scales(head[half], scales[half]);
      if constexpr (type == DType::q5_k) fifth[half] = load_8(column[half]);
    }
    int odd[kTiles][4];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[tile][i] = odd[tile][i] = 0;
    }
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const uint2 q[2] = {load_8(column[0] + kLow + 32 * pair), load_8(column[1] + kLow + 32 * pair)};
      const unsigned bytes[4] = {q[0].x, q[1].x, q[0].y, q[1].y};
      uint4 x[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) x[tile] = load_16(row + tile * kRowTile * kRowStride + 64 * pair);
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int group = 2 * pair + upper;
        unsigned level[4];
        group_levels<type>(group, bytes, fifth, level);
        int scale[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          scale[half] = static_cast<int>(__byte_perm(scales[half][group / 4], 0, 0x4440 + group % 4));
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const unsigned b0 = upper == 0 ? x[tile].x : x[tile].z;
          const unsigned b1 = upper == 0 ? x[tile].y : x[tile].w;
          int dot[4];
          mma_u8_k32(dot, level, b0, b1);
#pragma unroll
          for (int i = 0; i < 4; ++i) (upper == 0 ? sum : odd)[tile][i] += dot[i] * scale[i / 2];
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[tile][i] += type == DType::q5_k ? odd[tile][i] : odd[tile][i] >> 4;  // exact
    }
  }

  // The sums of minimums, exact, from those of 16 values of a row each: the lane's four of them.
  template <int kTiles, int kRowStride>
  __device__ __forceinline__ void multiply_mins(const std::byte* sums, float (&low)[kTiles][4]) const {
    const int t = threadIdx.x % 4;
    unsigned mins[4];  // lane t has groups 2 t and 2 t + 1
#pragma unroll
    for (int half = 0; half < 2; ++half) group_mins(head[half], t, mins[half], mins[half + 2]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint2 x = load_8(sums + tile * kRowTile * kRowStride);
      mma_f16_k16(low[tile], mins, x.x, x.y);
    }
  }
};

// Whole columns of kChunks superblocks of q6_k in planes: the first kFirst bytes of all of a tile, then the rest. The cut
// is 16 bytes behind ql.
template <int kChunks, int kFirst, int kRest>
struct BoxQ6K {
  static_assert(kFirst == 128 * kChunks + 16);
  const std::byte* at;

  __device__ __forceinline__ const std::byte* ql(int column, int byte) const { return at + column * kFirst + byte; }
  __device__ __forceinline__ const std::byte* rest(int column, int byte) const {
    return at + kTile * kFirst + column * kRest + (byte - kFirst);
  }
  __device__ __forceinline__ const std::byte* qh(int column, int byte) const {
    return byte == 0 ? ql(column, 128 * kChunks) : rest(column, 128 * kChunks + byte);
  }
  __device__ __forceinline__ const std::byte* scales(int column, int c) const {
    return rest(column, 192 * kChunks + 16 * c);
  }
  __device__ __forceinline__ const std::byte* d(int column, int c) const { return rest(column, 208 * kChunks + 2 * c); }
};

template <>
struct LaneWeights<DType::q6_k> {
  unsigned ql[2][8];
  unsigned qh[2][4];
  uint4 scales[2];
  std::uint16_t factor[2];

  // `chunk`: which superblock of its columns it is; the words with the factors are those of eight. `turned`: how many
  // bytes further round the words of columns l % 8 and l % 8 + 8 are.
  __device__ __forceinline__ LaneWeights(const std::byte* tile, int chunk, unsigned turned = 0, unsigned turned_8 = 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // A lane names a column's word of 16 bytes for all; which words it gets of which column is as above.
      const std::byte* named = tile + (threadIdx.x % 8 + 8 * half) * column_stride(DType::q6_k);
      const unsigned word = 16 * (threadIdx.x % kWarp / 8) + (half == 0 ? turned : turned_8);
      load_tiles(ql[half], named + word);
      load_tiles(ql[half] + 4, named + ((word + 64) & 127));
      load_tiles(qh[half], named + 128 + (word & 63));
      const int c = threadIdx.x % kWarp / 4 + 8 * half;
      const std::byte* block = tile + c * column_stride(DType::q6_k);
      scales[half] = load_16(block + 192);
      factor[half] =
          reinterpret_cast<const std::uint16_t*>(tile + kTile * column_stride(DType::q6_k) + 16 * c)[chunk % 8];
    }
  }
  // Superblock c of whole columns.
  template <int kChunks, int kFirst, int kRest>
  __device__ __forceinline__ LaneWeights(const BoxQ6K<kChunks, kFirst, kRest>& box, int c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int named = threadIdx.x % 8 + 8 * half;
      const int word = 16 * (threadIdx.x % kWarp / 8);
      load_tiles(ql[half], box.ql(named, 128 * c + word));
      load_tiles(ql[half] + 4, box.ql(named, 128 * c + word + 64));
      load_tiles(qh[half], box.qh(named, 64 * c + word));
      const int mine = threadIdx.x % kWarp / 4 + 8 * half;
      scales[half] = load_16(box.scales(mine, c));
      factor[half] = *reinterpret_cast<const std::uint16_t*>(box.d(mine, c));
    }
  }
  __device__ __forceinline__ float d(int half) const {
    return half_bits(factor[half]);
  }

  // Eight values from 8 i of a row's superblock, in runs of 64: lane t has 16 bytes of each, 4 of each group.
  static __device__ __forceinline__ std::byte* place(std::byte* to, int i) {
    return to + i / 8 * 64 + 32 * (i % 2) + 4 * (i / 2 % 4);
  }
  static __device__ __forceinline__ void put(std::byte* to, int i, int low, int high) {
    int* words = reinterpret_cast<int*>(place(to, i));
    words[0] = low;
    words[4] = high;
  }
  static __device__ __forceinline__ void copy(std::byte* to, int i, const std::int8_t* from) {
    copy_4(place(to, i), from);
    copy_4(place(to, i) + 16, from + 4);
  }

  template <int kTiles, int kRowStride>
  __device__ __forceinline__ void multiply(const std::byte* row, int (&sum)[kTiles][4]) const {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[tile][i] = 0;
    }
#pragma unroll
    for (int run = 0; run < 4; ++run) {  // groups 4 run .. 4 run + 3
      const int h = run / 2;
      uint4 x[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) x[tile] = load_16(row + tile * kRowTile * kRowStride + 64 * run);
#pragma unroll
      for (int v = 0; v < 4; ++v) {  // bytes 16 (4 h + v) of ql
        unsigned level[2];
        int scale[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          level[half] = levels_q6_k(ql[half][4 * h + v], qh[half][2 * h + v % 2], run, v);
          scale[half] = scale_q6_k(scales[half], 4 * run + v);
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const unsigned b = v == 0 ? x[tile].x : v == 1 ? x[tile].y : v == 2 ? x[tile].z : x[tile].w;
          int dot[4];
          mma_s8_k16(dot, level[0], level[1], b);
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[tile][i] += dot[i] * scale[i / 2];
        }
      }
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[tile][i] >>= 2;  // exact: every term is a multiple of 4
    }
  }
};

}  // namespace conclave::cuda
