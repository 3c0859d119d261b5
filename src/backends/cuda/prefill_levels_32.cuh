// The formats in blocks of 32 as prefill_levels.cuh has the others. A column in shared memory: scales of eight blocks
// in 16 bytes, then their levels as weight_planes.h has them.
//
// A level of eight bits raised by 128, or of four, is a number of bf16 as it stands. mxfp4's floats are bf16's too, if
// their exponent and mantissa are put where those of bf16 meet: 2^126 times smaller, and even so below the normal ones.
#pragma once

#include "backends/cuda/prefill_levels.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

template <DType type, int kApart>
class PrefillLevels32 {
 public:
  static constexpr int kWords = 2;
  static constexpr int kSteps = 2 * kWords;

  // Blocks 2 t and 2 t + 1. Those past the row's last have scales of zero, or mxfp4's smallest.
  __device__ __forceinline__ void load_scales(const std::byte* column, const std::byte* /*d*/, int /*c*/, int t) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::byte* from = column + j * kApart;
      if constexpr (type == DType::mxfp4) {
        const unsigned two = *reinterpret_cast<const std::uint16_t*>(from + 2 * t);
        scale_[j] = power(two & 0xFFU) | power(two >> 8) << 16;
        offset_[j] = 0;
      } else {
        const unsigned two = *reinterpret_cast<const unsigned*>(from + 4 * t);
        const unsigned scales = bf16_pair(half_of(two), half_of(two >> 16));
        scale_[j] =
            bf16_pair_fma(scales, type == DType::q8_0 ? 0x74007400U : 0x72007200U, 0x80008000U);  // 2^105, 2^101
        offset_[j] =
            bf16_pair_fma(scales, type == DType::q8_0 ? 0xB500B500U : 0xB300B300U, 0x80008000U);  // -2^-21, -2^-25
      }
    }
  }
  __device__ __forceinline__ void begin_half(int h) {
    half_ = h;
  }

  __device__ __forceinline__ void load(const std::byte* column, int t, int h, int part) {
    const int block = level_bytes(type);
    const std::byte* mine = column + 16 + 2 * t * block + (type == DType::q8_0 ? 16 * h : 0) + 8 * part;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        const auto two = *reinterpret_cast<const uint2*>(mine + j * kApart + b * block);
        words_[j][b][0] = two.x;
        words_[j][b][1] = two.y;
      }
    }
  }

  __device__ __forceinline__ void step(int i, int /*t*/, unsigned (&a)[4]) const {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const unsigned scale = i % 2 == 0 ? bf16_low_twice(scale_[j]) : bf16_high_twice(scale_[j]);
      const unsigned offset = i % 2 == 0 ? bf16_low_twice(offset_[j]) : bf16_high_twice(offset_[j]);
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        a[j + 2 * odd] = bf16_pair_fma(levels(words_[j][i % 2][i / 2], odd), scale, offset);
      }
    }
  }

 private:
  static __device__ __forceinline__ float half_of(unsigned bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
  // 2^(e - 127 + 126 - 28), as bf16.
  static __device__ __forceinline__ unsigned power(unsigned e) {
    return (e + 98 < 254 ? e + 98 : 254) << 7;
  }

  // Elements 0 and 2 of a word's four, or 1 and 3.
  __device__ __forceinline__ unsigned levels(unsigned word, int odd) const {
    if constexpr (type == DType::q8_0) {
      return ((odd == 0 ? word : word >> 8) & 0x00FF00FFU) ^ 0x00800080U;
    } else if constexpr (type == DType::q4_0) {
      // The first 16 elements in the low nibbles.
      const unsigned turned = half_ == 0 ? (odd == 0 ? word << 4 : word >> 4) : (odd == 0 ? word : word >> 8);
      return turned & 0x00F000F0U;
    } else {
      // The first 16 elements in the lower half of words: one byte of it to each half, at the top.
      const unsigned spread = __byte_perm(word, 0, half_ == 0 ? 0x1404 : 0x3424);
      const unsigned sign = (odd == 0 ? spread << 4 : spread) & 0x80008000U;
      return sign | ((odd == 0 ? spread >> 2 : spread >> 6) & 0x01C001C0U);
    }
  }

  unsigned scale_[2];
  unsigned offset_[2];
  unsigned words_[2][2][kWords];  // of a column: the first block's and the second's
  int half_ = 0;
};

}  // namespace conclave::cuda
