// One superblock of 16 columns that a warp keeps in registers, decoded, while many rows pass by, eight at a time. Lanes
// have weights and results as in lane_product.cuh. Rows lie as the bank has them, kDenseRowStride apart, the sums of 16
// values each behind the 256 values; of rows 4 to 7 neighbouring words of 16 bytes have changed places, so that no two
// rows are in the same banks.
#pragma once

#include <type_traits>

#include "backends/cuda/dense_rows_plan.h"
#include "backends/cuda/lane_product.cuh"

namespace conclave::cuda {

// Where word i of 16 bytes of a row lies.
__device__ __forceinline__ int dense_word(int row, int i) {
  return row * kDenseRowStride + 16 * (i ^ (row / 4));
}

// What q4_k and q5_k have beside their levels, of a lane's two columns; and a lane's part of rows.
template <DType type>
struct HeldAffine {
  static constexpr int kGroups = 8;
  unsigned mins[4];
  float d[2];
  float dmin[2];

  // `take(group, levels)`: a lane's levels of a group, as group_levels() gives them, one group after another.
  template <class Take>
  __device__ __forceinline__ void load_levels(const std::byte* tile, unsigned (&scales)[2][2], Take&& take) {
    constexpr int kLow = type == DType::q5_k ? 32 : 0;
    uint4 head[2];
    uint2 fifth[2];
    const std::byte* column[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::byte* block = tile + (threadIdx.x % kWarp / 4 + 8 * half) * column_stride(type);
      column[half] = block + 16 + 8 * (threadIdx.x % 4);
      head[half] = load_16(block);
      d[half] = half_bits(head[half].x);
      dmin[half] = half_bits(head[half].x >> 16);
      group_scales(head[half], scales[half]);
      group_mins(head[half], threadIdx.x % 4, mins[half], mins[half + 2]);
      if constexpr (type == DType::q5_k) fifth[half] = load_8(column[half]);
    }
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      const uint2 q[2] = {load_8(column[0] + kLow + 32 * pair), load_8(column[1] + kLow + 32 * pair)};
      const unsigned bytes[4] = {q[0].x, q[1].x, q[0].y, q[1].y};
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        unsigned level[4];
        group_levels<type>(2 * pair + upper, bytes, fifth, level);
        take(2 * pair + upper, level);
      }
    }
  }

  // A lane's row of a tile of rows, and its part of a group of it.
  static __device__ __forceinline__ const std::byte* row_of(const std::byte* rows) {
    const int row = threadIdx.x % kWarp / 4;
    return rows + row * kDenseRowStride + (8 * (threadIdx.x % 4) ^ row / 4 * 16);
  }
  static __device__ __forceinline__ uint2 part_of(const std::byte* row, int group) {
    return load_8(row + 32 * group);
  }

  // The sums of minimums times those of rows, exact.
  __device__ __forceinline__ void multiply_mins(const std::byte* row, float (&low)[4]) const {
    const uint2 sums = load_8(row + kChunk);
    mma_f16_k16(low, mins, sums.x, sums.y);
  }
};

// A lane's part of a superblock of its two columns.
template <DType type>
struct HeldWeights : HeldAffine<type> {
  unsigned level[8][4];
  unsigned scales[2][2];

  __device__ __forceinline__ void load(const std::byte* tile, int /*chunk*/) {
    this->load_levels(tile, scales, [&](int group, const unsigned(&levels)[4]) {
#pragma unroll
      for (int j = 0; j < 4; ++j) level[group][j] = levels[j];
    });
  }
  // What the sums of levels times scales begin with, a group's share of them, and what they come to.
  static __device__ __forceinline__ constexpr int none() {
    return 0;
  }
  __device__ __forceinline__ void add_group(int group, const uint2& part, int (&sum)[2][4]) const {
    int dot[4];
    mma_u8_k32(dot, level[group], part.x, part.y);
    const int at = type == DType::q5_k ? 0 : group % 2;  // of odd groups they are 16 times as large
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum[at][i] += dot[i] * static_cast<int>(__byte_perm(scales[i / 2][group / 4], 0, 0x4440 + group % 4));
    }
  }
  static __device__ __forceinline__ float total(const int (&sum)[2][4], int i) {
    return static_cast<float>(type == DType::q5_k ? sum[0][i] : sum[0][i] + (sum[1][i] >> 4));  // exact
  }
};

// The same with scales multiplied into the levels, which makes two digits of them: 8 (scale / 8) + scale % 8. All else
// is the tensor cores', in twice as many registers.
template <DType type>
struct HeldDigits : HeldAffine<type> {
  unsigned digit[8][2][4];

  __device__ __forceinline__ void load(const std::byte* tile, int /*chunk*/) {
    unsigned scales[2][2];
    this->load_levels(tile, scales, [&](int group, const unsigned(&levels)[4]) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        // Four levels in a word: no product of one reaches the next.
        const unsigned level = type == DType::q4_k && group % 2 == 1 ? levels[j] >> 4 : levels[j];
        const unsigned scale = __byte_perm(scales[j % 2][group / 4], 0, 0x4440 + group % 4);
        digit[group][0][j] = level * (scale >> 3);
        digit[group][1][j] = level * (scale & 7U);
      }
    });
  }
  // Of q4_k sums are below 2^22: they begin with the bits of 1.5 * 2^23, and end with those of so much more.
  static constexpr bool kAsFloats = type == DType::q4_k;
  static __device__ __forceinline__ constexpr int none() {
    return kAsFloats ? 0x4B400000 : 0;
  }
  __device__ __forceinline__ void add_group(int group, const uint2& part, int (&sum)[2][4]) const {
    add_mma_u8_k32(sum[0], digit[group][0], part.x, part.y);
    add_mma_u8_k32(sum[1], digit[group][1], part.x, part.y);
  }
  static __device__ __forceinline__ float total(const int (&sum)[2][4], int i) {
    if constexpr (!kAsFloats) return static_cast<float>(8 * sum[0][i] + sum[1][i]);
    constexpr float kMore = 12582912.0F;
    return fmaf(8.0F, __int_as_float(sum[0][i]) - kMore, __int_as_float(sum[1][i]) - kMore);  // rounded once
  }
};
static_assert(15 * 7 * 127 * kChunk < 1 << 22);

template <>
struct HeldWeights<DType::q6_k> {
  static constexpr int kGroups = 16;
  unsigned level[16][2];
  uint4 scales[2];
  float d[2];

  __device__ __forceinline__ void load(const std::byte* tile, int chunk) {
    const LaneWeights<DType::q6_k> stored(tile, chunk);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      d[half] = stored.d(half);
      scales[half] = stored.scales[half];
#pragma unroll
      for (int group = 0; group < 16; ++group) {
        const int run = group / 4;
        const int v = group % 4;
        level[group][half] =
            levels_q6_k(stored.ql[half][run / 2 * 4 + v], stored.qh[half][run / 2 * 2 + v % 2], run, v);
      }
    }
  }

  // A lane's row: of two neighbouring groups the one that lies first.
  static __device__ __forceinline__ const std::byte* row_of(const std::byte* rows) {
    return rows + threadIdx.x % kWarp / 4 * kDenseRowStride + 4 * (threadIdx.x % 4);
  }
  static __device__ __forceinline__ uint2 part_of(const std::byte* row, int group) {
    const int turned = static_cast<int>(threadIdx.x % kWarp / 16) * 16;
    return {load_4(row + (group % 2 == 0 ? turned : 16 - turned) + group / 2 * 32), 0U};
  }

  __device__ __forceinline__ void add_group(int group, const uint2& part, int (&sum)[2][4]) const {
    int dot[4];
    mma_s8_k16(dot, level[group][0], level[group][1], part.x);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[group % 2][i] += dot[i] * scale_q6_k(scales[i / 2], group);
  }
  static __device__ __forceinline__ constexpr int none() {
    return 0;
  }
  static __device__ __forceinline__ float total(const int (&sum)[2][4], int i) {
    return static_cast<float>((sum[0][i] + sum[1][i]) >> 2);  // exact: every term is a multiple of 4
  }
};

// In digits, where there are such and a thread has registers for them.
template <DType type, bool kRoom>
using Held = std::conditional_t<kRoom && is_affine(type), HeldDigits<type>, HeldWeights<type>>;

}  // namespace conclave::cuda
