// What lies in the planes of blocks of 32 (weight_planes.h), as products take it: levels as int8, scales as f32.
#pragma once

#include <type_traits>

#include "backends/cuda/decode.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

// Levels of q4_0 are multiplied as 16 times what they are, which takes no subtraction: sums are shifted back.
constexpr int level_shift(DType type) {
  return type == DType::q4_0 ? 4 : 0;
}

// Levels of mxfp4 come as 12 more than they are, which takes no signs: so many times the sum of a row's values are too
// much.
constexpr int level_excess(DType type) {
  return type == DType::mxfp4 ? 12 : 0;
}

// Bytes of a table of eight; 0 where the selecting nibble has its upper bit, as no byte of the table has.
__device__ __forceinline__ unsigned select_bytes(unsigned low, unsigned high, unsigned nibbles) {
  unsigned bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(nibbles));
  return bytes;
}
// Four nibbles as 0 1 2 3 4 6 8 12 and their negatives, each 12 more. `turned`: their upper bits the other way.
__device__ __forceinline__ unsigned mxfp4_four(unsigned nibbles, unsigned turned) {
  return select_bytes(0x0F0E0D0CU, 0x18141210U, nibbles) | select_bytes(0x090A0B0CU, 0x00040608U, turned);
}

// A word of 4-bit levels: elements 4 t .. 4 t + 3 of a block, t the word's place in it, and those 16 on.
template <DType type>
__device__ __forceinline__ void split_levels(unsigned word, unsigned& first, unsigned& second) {
  if constexpr (type == DType::q4_0) {
    first = (word << 4 & 0xF0F0F0F0U) ^ 0x80808080U;
    second = (word & 0xF0F0F0F0U) ^ 0x80808080U;
  } else {
    const unsigned turned = word ^ 0x88888888U;
    first = mxfp4_four(word, turned);
    second = mxfp4_four(word >> 16, turned >> 16);
  }
}

// Levels without their excess.
template <DType type>
__device__ __forceinline__ unsigned exact_levels(unsigned levels) {
  if constexpr (level_excess(type) == 0) return levels;
  return ((levels | 0x80808080U) - level_excess(type) * 0x01010101U) ^ 0x80808080U;
}

// The scales of two neighbouring blocks, the first at an even place.
template <DType type>
using ScalePair = std::conditional_t<type == DType::mxfp4, std::uint16_t, std::uint32_t>;

template <DType type>
__device__ __forceinline__ float scale_of(unsigned pair, int i) {
  if constexpr (type == DType::mxfp4) {
    // 2^(e - 128): the second is larger for 0 and 1 alone, whose numbers are subnormal.
    const auto e = static_cast<int>(pair >> 8 * i & 0xFFU);
    return __int_as_float(max(e * 0x00800000 - 0x00800000, e * 0x00200000 + 0x00200000));
  }
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(pair >> 16 * i)));
}

}  // namespace conclave::cuda
