// A superblock of one column in shared memory and the part of a row that meets it, in one lane.
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/pair_lists_plan.h"
#include "backends/cuda/quarter_unit.cuh"

namespace conclave::cuda {

// Of q6_k lanes go through the quarters of their superblocks in turn, each from another one on: else all would meet in
// the same banks. What is `at` bytes on for the lowest bit of a quarter's number, and `at_2` for the other.
__device__ __forceinline__ unsigned turned(unsigned step, unsigned at, unsigned at_2) {
  const auto places = [&](unsigned t) { return (t & 1U) * at + (t >> 1 & 1U) * at_2; };
  return places(threadIdx.x) ^ places(step);
}

// A row's part: 256 values, and the sums of groups, two in a word.
template <DType type>
struct UnitRow {
  static constexpr int kSums = 128 / group_length(type);
  int word[64];
  int sums[kSums];
  float scale;

  // From `chunk` on in shared memory, as rows lie there.
  __device__ __forceinline__ void load(unsigned chunk, float its_scale) {
    scale = its_scale;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      unsigned at = chunk + 16 * i;
      if constexpr (type == DType::q6_k) {
        at = chunk + turned(i / 4, 16, 128) + 32 * (i % 4);
      }
      const uint4 x = load_shared_16(at);
#pragma unroll
      for (int j = 0; j < 4; ++j) word[4 * i + j] = word_of(x, j);
    }
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      const uint4 x = load_shared_16(chunk + kChunk + 4 * i);
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[i + j] = word_of(x, j);
    }
  }
};

// Where a lane's superblock lies, from the first byte of its tile on.
template <DType type>
struct UnitPlace {
  unsigned block;

  __device__ __forceinline__ UnitPlace(unsigned column, int c, int /*chunks*/)
      : block(column + block_bytes(type) * c) {}
};
template <>
struct UnitPlace<DType::q6_k> {
  unsigned ql;
  unsigned qh;
  unsigned scales;
  unsigned d;

  __device__ __forceinline__ UnitPlace(unsigned column, int c, int chunks) {
    const PlanesQ6K planes{chunks};
    ql = column + static_cast<unsigned>(planes.ql(c));
    qh = column + static_cast<unsigned>(planes.qh(c));
    scales = column + static_cast<unsigned>(planes.scales(c));
    d = column + static_cast<unsigned>(planes.d(c));
  }
};

__device__ __forceinline__ float half_float(unsigned bits) {
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(bits)));
}
__device__ __forceinline__ int byte_of(unsigned word, int i) {
  return static_cast<int>(__byte_perm(word, 0, 0x4440 + i));
}

// What the superblock of the tile at `tile` adds to the output, and what it takes away.
template <DType type>
requires(is_affine(type)) __device__ __forceinline__ float2
    unit_product(unsigned tile, const UnitPlace<type>& at, const UnitRow<type>& row) {
  const unsigned block = tile + at.block;
  const uint4 head = load_shared_16(block);
  // Scales and minimums of groups 0 to 3 and 4 to 7 (src/quant/k_scales.h).
  const unsigned scales[2] = {head.y & 0x3F3F3F3FU, (head.w & 0x0F0F0F0FU) | (head.y >> 2 & 0x30303030U)};
  const unsigned mins[2] = {head.z & 0x3F3F3F3FU, (head.w >> 4 & 0x0F0F0F0FU) | (head.z >> 2 & 0x30303030U)};
  uint4 fifth[2];
  if constexpr (type == DType::q5_k) {
    fifth[0] = load_shared_16(block + 16);
    fifth[1] = load_shared_16(block + 32);
  }
  int even = 0;
  int odd = 0;  // of q4_k 16 times what it means
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const unsigned low = block + (type == DType::q5_k ? 48 : 16) + 32 * j;
    const uint4 q[2] = {load_shared_16(low), load_shared_16(low + 16)};
    int dot[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto both = static_cast<unsigned>(word_of(q[i / 4], i % 4));
      unsigned level[2] = {both & 0x0F0F0F0FU, both & 0xF0F0F0F0U};
      if constexpr (type == DType::q5_k) {
        const auto bits = static_cast<unsigned>(word_of(fifth[i / 4], i % 4));
        level[0] |= (bits >> 2 * j & 0x01010101U) << 4;
        level[1] = level[1] >> 4 | (bits >> (2 * j + 1) & 0x01010101U) << 4;
      }
#pragma unroll
      for (int g = 0; g < 2; ++g) {
        dot[g] = dot_unsigned(static_cast<int>(level[g]), row.word[16 * j + 8 * g + i], dot[g]);
      }
    }
    even += dot[0] * byte_of(scales[j / 2], 2 * (j % 2));
    odd += dot[1] * byte_of(scales[j / 2], 2 * (j % 2) + 1);
  }
  const int total = even + (type == DType::q4_k ? odd >> 4 : odd);  // exact
  int low = 0;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    low = __dp2a_lo(row.sums[2 * i], static_cast<int>(mins[i]), low);
    low = __dp2a_hi(row.sums[2 * i + 1], static_cast<int>(mins[i]), low);
  }
  return {(row.scale * half_float(head.x)) * static_cast<float>(total),
          (row.scale * half_float(head.x >> 16)) * static_cast<float>(low)};
}

// A byte of a word with its sign, as prmt's selector says. Byte 0 is 0x8880, and each next one 0x1111 on.
__device__ __forceinline__ int select_byte(unsigned word, unsigned selector) {
  int y;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(y) : "r"(word), "r"(selector));
  return y;
}

// Instructions as they are written: the compiler would make more of them.
__device__ __forceinline__ unsigned masked(unsigned x, unsigned mask) {
  unsigned y;
  asm("and.b32 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(mask));
  return y;
}
// Nibbles of `low`, and what is above them in `high`.
__device__ __forceinline__ int with_nibbles(unsigned low, unsigned high) {
  int y;
  asm("lop3.b32 %0, %1, %2, %3, 0xCA;" : "=r"(y) : "r"(0x0F0F0F0FU), "r"(low), "r"(high));
  return y;
}

// Levels from 0 to 63, of which 32 is taken away by the sums of a row.
template <DType type>
requires(type == DType::q6_k) __device__ __forceinline__
    float unit_product(unsigned tile, const UnitPlace<type>& at, const UnitRow<type>& row) {
  int total = 0;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const unsigned ql_at = tile + at.ql + turned(step, 16, 64);
    const uint4 ql[2] = {load_shared_16(ql_at), load_shared_16(ql_at + 32)};
    const uint4 qh = load_shared_16(tile + at.qh + turned(step, 16, 32));
    const float2 scales = load_shared_8(tile + at.scales + turned(step, 0, 8));
    const unsigned byte = turned(step, 0x1111U, 0);
    const unsigned selectors[2] = {0x8880U ^ byte, 0xAAA2U ^ byte};
    int dot[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Of two quarters each, so that above the nibbles there is nothing else.
      const unsigned even = masked(static_cast<unsigned>(word_of(qh, i)), 0x33333333U);
      const unsigned odd = masked(static_cast<unsigned>(word_of(qh, i)), 0xCCCCCCCCU);
      const unsigned low[2] = {static_cast<unsigned>(word_of(ql[0], i)), static_cast<unsigned>(word_of(ql[1], i))};
      const int level[4] = {with_nibbles(low[0], even << 4), with_nibbles(low[1], odd << 2),
                            with_nibbles(low[0] >> 4, even), with_nibbles(low[1] >> 4, odd >> 2)};
#pragma unroll
      for (int quarter = 0; quarter < 4; ++quarter) {
        dot[quarter] = __dp4a(level[quarter], row.word[16 * step + 4 * quarter + i], dot[quarter]);
      }
    }
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      total += dot[quarter] * select_byte(__float_as_uint(quarter < 2 ? scales.x : scales.y), selectors[quarter % 2]);
    }
  }
  const uint4 scales = load_shared_16(tile + at.scales);
  int less = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    less = __dp2a_lo(row.sums[2 * i], word_of(scales, i), less);
    less = __dp2a_hi(row.sums[2 * i + 1], word_of(scales, i), less);
  }
  total -= 32 * less;
  const float d = half_float(load_shared_2(tile + at.d));
  return (row.scale * d) * static_cast<float>(total);
}
static_assert(std::int64_t{kChunk} * (63 + 32) * 127 * 128 < std::int64_t{1} << 31);

}  // namespace conclave::cuda
