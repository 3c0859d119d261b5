// Weights of a superblock as bf16, 2^28 times smaller, in the registers that wgmma takes (wgmma_bf16.cuh).
//
// A level of b bits is put at bits 8 - b to 7 of a bf16 and read as that number: level * 2^-(125 + b), without anything
// added to it, since numbers below the normal ones, and the smallest of those, go on in even steps. So
//   w = fma(level * 2^-e, scale * 2^(e - 28), -min * 2^-28)      e: 129 of 4 bits, 130 of 5, 131 of 6
// where those that begin at bit 0 have e = 133, and q6_k's minimum is 32 scales. Two weights, two apart in their row, share a word.
#pragma once

#include "backends/cuda/bf16_pair.cuh"
#include "backends/cuda/element.cuh"
#include "backends/cuda/prefill_rows_plan.h"

namespace conclave::cuda {

inline constexpr float kPrefillSmaller = 0x1p-28F;
inline constexpr float kPrefillLarger = 0x1p28F;

// What a lane decodes of a superblock: of two columns, 8 apart, elements 64 t to 64 t + 63, t = lane % 4. Those have
// two scales in q4_k and q5_k, of 32 elements, and four in q6_k.
// kApart: bytes from the lane's first column to its second.
template <DType type, int kApart>
class PrefillLevels {
 public:
  static constexpr int kWords = type == DType::q5_k ? 2 : 4;  // that are loaded at once, as there are registers for
  static constexpr int kSteps = 2 * kWords;                   // of wgmma, that they make

  // `column`: the lane's first column's superblock in shared memory. q6_k: superblock c, whose d is in the word at `d`.
  __device__ __forceinline__ void load_scales(const std::byte* column, const std::byte* d, int c, int t) {
    if constexpr (is_affine(type)) {
      affine_scales(column, t);
    } else {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const unsigned word = word_at(d + 8 * j * 4);
        factor_[j] = __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16 * (c & 1))));
        packed_[j] = word_at(column + j * kApart + 192 + 4 * t) ^ 0x80808080U;
      }
    }
  }
  // Before the words of half h.
  __device__ __forceinline__ void begin_half(int h) {
    if constexpr (type == DType::q6_k) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float less = -32896.0F * factor_[j];  // exact, as is all of it up to the pair
        float first = fmaf(__uint_as_float(__byte_perm(packed_[j], 0x47U, 0x4505 + 0x10 * h)), factor_[j], less);
        first = fmaxf(first, -0x1.FEp22F);  // the largest of all would be infinite below
        const float second = fmaf(__uint_as_float(__byte_perm(packed_[j], 0x47U, 0x4525 + 0x10 * h)), factor_[j], less);
        const unsigned scales = bf16_pair(first, second);
        scale_[j] = bf16_pair_fma(scales, 0x73007400U, 0x80008000U);   // 2^105 and 2^103
        offset_[j] = bf16_pair_fma(scales, 0xB400B400U, 0x80008000U);  // -32 * 2^-28
      }
    }
  }

  // Words kWords part and on of half h.
  __device__ __forceinline__ void load(const std::byte* column, int t, int h, int part) {
    const int at = 16 * h + 4 * kWords * part;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::byte* from = column + j * kApart + at;
      if constexpr (type == DType::q4_k) {
        four_at(from + 16 + 32 * t, low_[j]);
      } else if constexpr (type == DType::q5_k) {
        two_at(from + 48 + 32 * t, low_[j]);
        two_at(from + 16, bits_[j]);
      } else {
        four_at(from + 64 * (t / 2), low_[j]);
        four_at(from + 64 * (t / 2) + 32, high_[j]);
        four_at(from + 128 + 32 * (t / 2), bits_[j]);
        join_bits(j, t);
      }
    }
  }

  // Of these words, step i.
  __device__ __forceinline__ void step(int i, int t, unsigned (&a)[4]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const unsigned scale = i % 2 == 0 ? bf16_low_twice(scale_[j]) : bf16_high_twice(scale_[j]);
      const unsigned offset = i % 2 == 0 ? bf16_low_twice(offset_[j]) : bf16_high_twice(offset_[j]);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) a[j + 2 * odd] = bf16_pair_fma(levels(j, i, odd, t), scale, offset);
    }
  }

 private:
  static __device__ __forceinline__ unsigned word_at(const std::byte* p) {
    return *reinterpret_cast<const unsigned*>(p);
  }
  template <int n>
  static __device__ __forceinline__ void two_at(const std::byte* p, unsigned (&to)[n]) {
    const auto two = *reinterpret_cast<const uint2*>(p);
    to[0] = two.x;
    to[1] = two.y;
  }
  template <int n>
  static __device__ __forceinline__ void four_at(const std::byte* p, unsigned (&to)[n]) {
    const auto four = *reinterpret_cast<const uint4*>(p);
    to[0] = four.x;
    to[1] = four.y;
    to[2] = four.z;
    to[3] = four.w;
  }
  static __device__ __forceinline__ unsigned turned_left(unsigned word, int bits) {
    return __funnelshift_l(word, word, static_cast<unsigned>(bits));
  }

  // Groups 2 t and 2 t + 1 of src/quant/k_scales.h: two bytes each of the three words, of both columns side by side.
  __device__ __forceinline__ void affine_scales(const std::byte* column, int t) {
    const auto one = *reinterpret_cast<const uint4*>(column);
    const auto other = *reinterpret_cast<const uint4*>(column + kApart);
    const unsigned mine = t % 2 == 0 ? 0x5410U : 0x7632U;
    const unsigned first = __byte_perm(one.y, other.y, mine);
    const unsigned second = __byte_perm(one.z, other.z, mine);
    const unsigned third = __byte_perm(one.w, other.w, mine);
    const bool upper = t >= 2;
    const unsigned scales = upper ? (third & 0x0F0F0F0FU) | (first >> 2 & 0x30303030U) : first & 0x3F3F3F3FU;
    const unsigned mins = upper ? (third >> 4 & 0x0F0F0F0FU) | (second >> 2 & 0x30303030U) : second & 0x3F3F3F3FU;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const unsigned head = j == 0 ? one.x : other.x;
      const unsigned both = j == 0 ? 0x4140U : 0x4342U;
      // Of q4_k the first group's levels are four bits lower than the second's.
      scale_[j] = bf16_pair_fma(products(__byte_perm(scales, 0, both), low_half(head) * 0x1p100F),
                                type == DType::q4_k ? 0x4C004E00U : 0x4C804C80U, 0U);  // 2^29 and 2^25, or 2^26
      offset_[j] = products(__byte_perm(mins, 0, both), low_half(head >> 16) * (-0x1p24F * kPrefillSmaller));
    }
  }
  static __device__ __forceinline__ float low_half(unsigned word) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(word)));
  }
  // Two numbers below 64, which are 2^24 times smaller if read as f16, times a factor: exact, then rounded to a pair.
  static __device__ __forceinline__ unsigned products(unsigned two, float factor) {
    return bf16_pair(low_half(two) * factor, low_half(two >> 16) * factor);
  }

  // q6_k: four whole levels a word, those of the first 32 elements from bit 0 of their bytes on, the others from bit 2.
  __device__ __forceinline__ void join_bits(int j, int t) {
    const int turn = 4 * (t % 2);
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const unsigned upper = turned_left(bits_[j][i], 4 - turn);
      low_[j][i] = (low_[j][i] >> turn & 0x0F0F0F0FU) | (upper & 0x30303030U);
      high_[j][i] = (turned_left(high_[j][i], 2 - turn) & 0x3C3C3C3CU) | (upper & 0xC0C0C0C0U);
    }
  }

  // Two levels of column j for step i: elements 0 and 2 of four, or 1 and 3.
  __device__ __forceinline__ unsigned levels(int j, int i, int odd, int t) const {
    const int group = i % 2;
    if constexpr (type == DType::q4_k) {
      const unsigned word = odd == 0 ? low_[j][i / 2] : low_[j][i / 2] >> 8;
      return word & (group == 0 ? 0x000F000FU : 0x00F000F0U);
    } else if constexpr (type == DType::q5_k) {
      const unsigned word = low_[j][i / 2];
      const unsigned four = (group == 0 ? (odd == 0 ? word << 3 : word >> 5) : (odd == 0 ? word >> 1 : word >> 9));
      const unsigned fifth = turned_left(bits_[j][i / 2], 7 + 24 * odd - group - 2 * t);
      return (four & 0x00780078U) | (fifth & 0x00800080U);
    } else {
      const unsigned word = group == 0 ? low_[j][i / 2] : high_[j][i / 2];
      return odd == 0 ? word & 0x00FF00FFU : __byte_perm(word, 0, 0x4341);
    }
  }

  unsigned scale_[2];  // of a column: the first group's and the second's
  unsigned offset_[2];
  unsigned low_[2][kWords];
  unsigned high_[2][kWords];  // q6_k: of the second 32 elements
  unsigned bits_[2][kWords];  // upper bits
  float factor_[2];           // q6_k
  unsigned packed_[2];
};

}  // namespace conclave::cuda
