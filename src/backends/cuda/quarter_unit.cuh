// A quarter of a superblock of one column, in the registers of one lane: 64 weights, and what their products with rows
// of int8 come to. Which quarter is what the format keeps together; sums of integers have no order.
//
//   q4_k q5_k   quarter t: groups 2 t and 2 t + 1
//   q6_k        quarter t: 16 neighbouring elements of each group of 32 in half t / 2; scales are of 16 elements
//   q8_0 q4_0 mxfp4   of eight blocks, quarter t: blocks 2 t and 2 t + 1
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/one_row_plan.h"
#include "backends/cuda/plane_levels.cuh"
#include "backends/cuda/shared_memory.cuh"

namespace conclave::cuda {

// Weights lie in global memory, or a copy of their column in shared memory, from an address on.
__device__ __forceinline__ uint4 load_weights(const std::byte* p) {
  return __ldg(reinterpret_cast<const uint4*>(p));
}
__device__ __forceinline__ uint4 load_weights(unsigned shared) {
  return load_shared_16(shared);
}
__device__ __forceinline__ std::uint16_t load_factor(const std::byte* p) {
  return __ldg(reinterpret_cast<const std::uint16_t*>(p));
}
__device__ __forceinline__ std::uint16_t load_factor(unsigned shared) {
  return load_shared_2(shared);
}
__device__ __forceinline__ int word_of(const uint4& v, int i) {
  return static_cast<int>(i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w);
}

// sum += a b, of four bytes each: those of a have no sign.
__device__ __forceinline__ int dot_unsigned(int a, int b, int sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

// Ready to be multiplied: sixteen words of int8, and what the sums of each run of them are multiplied with. Of q4_k the
// second run is unsigned, and 16 times what it means.
template <DType type>
struct QuarterLevels {
  static constexpr int kRuns = type == DType::q6_k ? 4 : 2;
  int word[16];
  int scale[kRuns];
  int min[is_affine(type) ? 2 : 1];
};

template <DType type>
struct QuarterUnit {
  uint4 head;  // d, dmin, scales and minimums
  uint4 q[2];
  uint4 fifth[type == DType::q5_k ? 2 : 1];

  // Where superblock c of a column and the lane's part of it lie, from the column's first byte on.
  struct Place {
    unsigned block;
    unsigned low;

    __device__ __forceinline__ Place(int c, int t, int /*chunks*/)
        : block(block_bytes(type) * c), low(block + (type == DType::q5_k ? 48 : 16) + 32 * t) {}
  };
  template <class Column>
  __device__ __forceinline__ void load(Column column, const Place& at) {
    head = load_weights(column + at.block);
    q[0] = load_weights(column + at.low);
    q[1] = load_weights(column + at.low + 16);
    if constexpr (type == DType::q5_k) {
      fifth[0] = load_weights(column + at.block + 16);
      fifth[1] = load_weights(column + at.block + 32);
    }
  }
  __device__ __forceinline__ float d() const {
    return __half2float(__ushort_as_half(static_cast<std::uint16_t>(head.x)));
  }
  __device__ __forceinline__ float dmin() const {
    return __half2float(__ushort_as_half(static_cast<std::uint16_t>(head.x >> 16)));
  }
  __device__ __forceinline__ void unpack(int t, QuarterLevels<type>& out) const {
    // The scales and minimums of two groups, side by side (src/quant/k_scales.h).
    const unsigned s = head.y >> 16 * (t % 2);
    const unsigned m = head.z >> 16 * (t % 2);
    const unsigned upper = head.w >> 16 * (t % 2);
    const unsigned scales = t < 2 ? s & 0x3F3FU : (upper & 0x0F0FU) | (s >> 2 & 0x3030U);
    const unsigned mins = t < 2 ? m & 0x3F3FU : (upper >> 4 & 0x0F0FU) | (m >> 2 & 0x3030U);
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      out.scale[group] = static_cast<int>(scales >> 8 * group & 0xFFU);
      out.min[group] = static_cast<int>(mins >> 8 * group & 0xFFU);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const auto both = static_cast<unsigned>(word_of(q[i / 4], i % 4));
        if constexpr (type == DType::q5_k) {
          const auto fifths = static_cast<unsigned>(word_of(fifth[i / 4], i % 4)) >> (2 * t + group) & 0x01010101U;
          out.word[8 * group + i] = static_cast<int>((both >> 4 * group & 0x0F0F0F0FU) | fifths << 4);
        } else {
          out.word[8 * group + i] = static_cast<int>(both & 0x0F0F0F0FU << 4 * group);  // the upper ones 16 times
        }
      }
    }
  }
  // Where sixteen bytes of a row's superblock that the lane wants lie.
  static __device__ __forceinline__ int place(int t, int four) {
    return 64 * t + 16 * four;
  }
  static constexpr int kShift = 0;  // of the sums, to the right
};

template <>
struct QuarterUnit<DType::q6_k> {
  uint4 ql[2];
  uint4 qh;
  uint4 scales;
  std::uint16_t factor;

  struct Place {
    unsigned ql;
    unsigned qh;
    unsigned scales;
    unsigned d;

    __device__ __forceinline__ Place(int c, int t, int chunks) {
      const PlanesQ6K planes{chunks};
      ql = static_cast<unsigned>(planes.ql(c)) + 64 * (t / 2) + 16 * (t % 2);
      qh = static_cast<unsigned>(planes.qh(c)) + 32 * (t / 2) + 16 * (t % 2);
      scales = static_cast<unsigned>(planes.scales(c));
      d = static_cast<unsigned>(planes.d(c));
    }
  };
  template <class Column>
  __device__ __forceinline__ void load(Column column, const Place& at) {
    ql[0] = load_weights(column + at.ql);
    ql[1] = load_weights(column + at.ql + 32);
    qh = load_weights(column + at.qh);
    scales = load_weights(column + at.scales);
    factor = load_factor(column + at.d);
  }
  __device__ __forceinline__ float d() const { return __half2float(__ushort_as_half(factor)); }
  __device__ __forceinline__ float dmin() const { return 0.0F; }
  // A byte is 4 (level - 32): four bits of ql, two of qh above them, and the sign turned round.
  __device__ __forceinline__ void unpack(int t, QuarterLevels<DType::q6_k>& out) const {
    const unsigned low_scales = t < 2 ? scales.x : scales.z;
    const unsigned high_scales = t < 2 ? scales.y : scales.w;
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      const unsigned of = (quarter < 2 ? low_scales : high_scales) >> 8 * (t % 2) >> 16 * (quarter % 2);
      out.scale[quarter] = static_cast<std::int8_t>(of & 0xFFU);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const auto nibbles = static_cast<unsigned>(word_of(ql[quarter % 2], i));
        const unsigned low = quarter < 2 ? nibbles << 2 : nibbles >> 2;
        const unsigned high = static_cast<unsigned>(word_of(qh, i)) << (6 - 2 * quarter);
        out.word[4 * quarter + i] = static_cast<int>(((low & 0x3C3C3C3CU) ^ 0x80808080U) ^ (high & 0xC0C0C0C0U));
      }
    }
  }
  static __device__ __forceinline__ int place(int t, int four) {
    return 128 * (t / 2) + 32 * four + 16 * (t % 2);
  }
  static constexpr int kShift = 2;
};

// Each of its blocks has a scale, and a sum, of its own.
template <DType type>
requires(is_block_32(type)) struct QuarterUnit<type> {
  static constexpr int kWords = level_bytes(type) / 16;  // of 16 bytes, of a block
  uint4 q[2 * kWords];
  unsigned scales;

  // Past the last block it is the last again, under a scale from the row's padding: it meets zeros.
  struct Place {
    unsigned levels[2];
    unsigned scales;

    __device__ __forceinline__ Place(int c, int t, int blocks) {
      const Planes32 planes{type, blocks};
      const int first = 8 * c + 2 * t;
#pragma unroll
      for (int i = 0; i < 2; ++i) levels[i] = static_cast<unsigned>(planes.levels(min(first + i, blocks - 1)));
      scales = static_cast<unsigned>(planes.scales(first));
    }
  };
  __device__ __forceinline__ void load(const std::byte* column, const Place& at) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        q[kWords * i + word] = load_weights(column + at.levels[i] + 16 * word);
      }
    }
    scales = __ldg(reinterpret_cast<const ScalePair<type>*>(column + at.scales));
  }
  __device__ __forceinline__ float d(int block) const {
    return scale_of<type>(scales, block);
  }
  __device__ __forceinline__ void unpack(int /*t*/, QuarterLevels<type>& out) const {
#pragma unroll
    for (int i = 0; i < 8 * kWords; ++i) {
      const int word = word_of(q[i / 4], i % 4);
      if constexpr (type == DType::q8_0) {
        out.word[i] = word;
      } else {
        unsigned low;
        unsigned high;
        split_levels<type>(static_cast<unsigned>(word), low, high);
        out.word[8 * (i / 4) + i % 4] = static_cast<int>(low);
        out.word[8 * (i / 4) + 4 + i % 4] = static_cast<int>(high);
      }
    }
  }
  static __device__ __forceinline__ int place(int t, int four) {
    return 64 * t + 16 * four;
  }
  static constexpr int kShift = level_shift(type);
};

// What a superblock adds to the output, in the first of its four lanes, and what it takes away, in the second: lanes
// that share it sum up one of the two each.
template <DType type, class Row>
__device__ __forceinline__ float superblock_product(const QuarterUnit<type>& unit, const QuarterLevels<type>& levels,
                                                    const Row& row, int t) {
  constexpr int kRuns = QuarterLevels<type>::kRuns;
  int total = 0;
#pragma unroll
  for (int run = 0; run < kRuns; ++run) {
    int dot = 0;
#pragma unroll
    for (int i = 0; i < 16 / kRuns; ++i) {
      const int at = 16 / kRuns * run + i;
      dot = is_affine(type) ? dot_unsigned(levels.word[at], row.word[at], dot)
                            : __dp4a(levels.word[at], row.word[at], dot);
    }
    if (type == DType::q4_k && run == 1) dot >>= 4;  // exact
    total += dot * levels.scale[run];
  }
  float by = unit.d();
  if constexpr (is_affine(type)) {
    const int low = row.sum[0] * levels.min[0] + row.sum[1] * levels.min[1];
    const bool takes_away = t % 2 != 0;
    const int theirs = __shfl_xor_sync(kAllLanes, takes_away ? total : low, 1);
    total = (takes_away ? low : total) + theirs;
    if (takes_away) by = unit.dmin();
  } else {
    total += __shfl_xor_sync(kAllLanes, total, 1);
  }
  total += __shfl_xor_sync(kAllLanes, total, 2);
  return (row.scale * by) * static_cast<float>(total >> QuarterUnit<type>::kShift);
}

}  // namespace conclave::cuda
