// Columns of weights as stored made into digits, minimums and factors (dense_tall_plan.h), by all threads of a block.
#pragma once

#include "backends/cuda/dense_tall_plan.h"
#include "backends/cuda/lane_product.cuh"
#include "backends/cuda/shared_memory.cuh"

namespace conclave::cuda {

__device__ __forceinline__ void store_16(unsigned at, const unsigned (&word)[4]) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
               : "memory");
}
__device__ __forceinline__ void store_8(unsigned at, unsigned x, unsigned y) {
  asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(at), "r"(x), "r"(y) : "memory");
}

// A quarter of a superblock of a column: four runs of 16 weights.
struct TallQuarter {
  unsigned raw;      // its column as stored
  unsigned digits;   // the run of 128 that its first digits go to
  unsigned turned;   // 16 bytes of it at place p go to place p ^ turned
  unsigned mins;     // of its superblock and column,
  unsigned factors;  // and of them
  unsigned chunk;
  unsigned part;  // which quarter
};

// Digits of 16 weights: to place `place`, and those of the lower digit `apart` bytes on.
__device__ __forceinline__ void store_digits(const TallQuarter& at, unsigned place, unsigned apart,
                                             const unsigned (&high)[4], const unsigned (&low)[4]) {
  const unsigned to = at.digits + 16 * (place ^ at.turned);
  store_16(to, high);
  store_16(to + apart, low);
}

// 64 neighbours: low nibbles of 32 bytes, then high ones, a scale each.
__device__ __forceinline__ void decode_q4_k(const TallQuarter& at, unsigned apart) {
  const unsigned block = at.raw + at.chunk * block_bytes(DType::q4_k);
  const uint4 head = load_shared_16(block);
  unsigned scales[2];
  group_scales(head, scales);
  const unsigned two = (at.part < 2 ? scales[0] : scales[1]) >> 16 * (at.part % 2);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint4 q = load_shared_16(block + 16 + 32 * at.part + 16 * i);
    const unsigned word[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      const unsigned scale = two >> 8 * upper & 0x3FU;
      unsigned high[4];
      unsigned low[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const unsigned level = word[j] >> 4 * upper & 0x0F0F0F0FU;  // four in a word: no product reaches the next
        high[j] = level * (scale >> 3);
        low[j] = level * (scale & 7U);
      }
      store_digits(at, 4 * (at.part % 2) + 2 * upper + i, apart, high, low);
    }
  }
  unsigned even;
  unsigned odd;
  group_mins(head, static_cast<int>(at.part), even, odd);
  store_8(at.mins + 8 * at.part, even, odd);
  if (at.part == 0) {
    store_8(at.factors, __float_as_uint(half_bits(head.x)), __float_as_uint(half_bits(head.x >> 16)));
  }
}

// Four levels from 0 to 63 times a scale, less 32 times it, as digits. Two products fit in a word.
__device__ __forceinline__ void digits_q6_k(unsigned levels, int scale, unsigned& high, unsigned& low) {
  const unsigned s = static_cast<unsigned>(scale);
  const unsigned less =
      0x4000U - 32U * s * 0x10001U;  // the lower product stays above 0: it takes nothing from the upper
  const unsigned a = __byte_perm(levels, 0, 0x4140) * s + less;
  const unsigned b = __byte_perm(levels, 0, 0x4342) * s + less;
  high = __byte_perm(a >> 6, b >> 6, 0x6420);
  low = __byte_perm(a, b, 0x6420) & 0x3F3F3F3FU;
}

// Four times 16 of a half superblock, 32 apart, from planes.
__device__ __forceinline__ void decode_q6_k(const TallQuarter& at, unsigned apart, unsigned chunks) {
  const unsigned half = at.part / 2;
  const unsigned second = at.part % 2;  // 16 of 32
  const unsigned ql = at.raw + 128 * at.chunk + 64 * half + 16 * second;
  const uint4 q[2] = {load_shared_16(ql), load_shared_16(ql + 32)};
  const uint4 top = load_shared_16(at.raw + 128 * chunks + 64 * at.chunk + 32 * half + 16 * second);
  const uint4 all_scales = load_shared_16(at.raw + 192 * chunks + 16 * at.chunk);
  const unsigned scales[2] = {half == 0 ? all_scales.x : all_scales.z, half == 0 ? all_scales.y : all_scales.w};
  const unsigned bits[4] = {top.x, top.y, top.z, top.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const uint4& from = q[j % 2];
    const unsigned word[4] = {from.x, from.y, from.z, from.w};
    const int scale = static_cast<int>(scales[j / 2] << (24 - 16 * (j % 2) - 8 * second)) >> 24;
    unsigned high[4];
    unsigned low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned upper = j < 2 ? bits[i] << (4 - 2 * j) : bits[i] >> (2 * j - 4);
      digits_q6_k((word[i] >> 4 * (j / 2) & 0x0F0F0F0FU) | (upper & 0x30303030U), scale, high[i], low[i]);
    }
    store_digits(at, 2 * j + second, apart, high, low);
  }
  if (at.part == 0) {
    store_8(at.factors, __float_as_uint(half_bits(load_shared_2(at.raw + 208 * chunks + 2 * at.chunk))), 0);
  }
}

// Of a block with room for kColumns columns, of which it has `columns`.
struct TallPlaces {
  unsigned digits;
  unsigned factors;
  unsigned mins;
  unsigned raw;
};
template <DType type, int kColumns>
__device__ __forceinline__ void decode_columns(const TallPlaces& at, unsigned columns, unsigned chunks) {
  constexpr unsigned kEights = kColumns / 8;
  constexpr unsigned kApart = kColumns * 128;
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned part = lane / 8;  // eight neighbouring lanes have as many columns
  const unsigned stride = tall_raw_stride(type, static_cast<int>(chunks));
#pragma unroll 1
  for (unsigned i = threadIdx.x / kWarp; i < kEights * chunks; i += kTallWarps) {
    const unsigned chunk = i / kEights;
    const unsigned column = (i - chunk * kEights) * 8 + lane % 8;
    if (column >= columns) continue;
    const unsigned place = chunk * kColumns + column;
    const TallQuarter quarter{.raw = at.raw + column * stride,
                              .digits = at.digits + ((chunk * 2 + part / 2) * 2 * kColumns + column) * 128,
                              .turned = lane % 8,
                              .mins = at.mins + place * 32,
                              .factors = at.factors + place * 8,
                              .chunk = chunk,
                              .part = part};
    if constexpr (type == DType::q4_k) {
      decode_q4_k(quarter, kApart);
    } else {
      decode_q6_k(quarter, kApart, chunks);
    }
  }
}

}  // namespace conclave::cuda
