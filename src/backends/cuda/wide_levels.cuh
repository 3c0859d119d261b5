// Weights of a superblock as two digits of a byte each, level times scale, in the registers that wgmma takes
// (wgmma.cuh): sums of products with activations need no scaling afterwards, and S = base * sum(high q) + sum(low q) is
// the exact integer of product_plan.h.
//
//   q4_k q5_k   level * scale = 8 * (level * (scale / 8)) + level * (scale % 8)     bytes without sign, up to 31 * 7
//   q6_k        (level - 32) * scale = 256 * high + low, high signed, low not
//
// A byte's product with a digit stays in its byte, so one multiplication does four weights; for q6_k one does two,
// which share a word as 16-bit numbers raised by 2^15.
#pragma once

#include "backends/cuda/few_rows_plan.h"

namespace conclave::cuda {

// Fragments come two at a time, from the same words: pair j, j below 4, has k-steps (32 of k) pair_step(j, 0) and (j,
// 1).
template <DType type>
constexpr int pair_step(int j, int e) {
  return is_affine(type) ? 2 * j + e : 4 * (j / 2) + j % 2 + 2 * e;
}
template <DType type>
inline constexpr int kDigitBits = is_affine(type) ? 3 : 8;

__device__ __forceinline__ unsigned wide_word(const std::byte* p) {
  return *reinterpret_cast<const unsigned*>(p);
}

// A lane's two columns, 8 apart: `column` is the first's superblock in shared memory, 8 `stride` bytes before the
// second's. q6_k: ql, qh and scales side by side.
template <DType type>
class WideLevels {
 public:
  __device__ __forceinline__ WideLevels(const std::byte* column, int stride, int lane)
      : words_(column + 4 * (lane % 4)), stride_(stride) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::byte* head = column + 8 * half * stride;
      if constexpr (is_affine(type)) {  // the 12 bytes of src/quant/k_scales.h
        const unsigned s = wide_word(head + 4);
        const unsigned first = s & 0x3F3F3F3FU;
        const unsigned second = (wide_word(head + 12) & 0x0F0F0F0FU) | (s >> 2 & 0x30303030U);
        high_[half][0] = first >> 3 & 0x07070707U;
        high_[half][1] = second >> 3 & 0x07070707U;
        low_[half][0] = first & 0x07070707U;
        low_[half][1] = second & 0x07070707U;
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          high_[half][i] = wide_word(head + 192 + 4 * i);
          low_[half][i] = wide_word(head + 200 + 4 * i);
        }
      }
    }
  }

  __device__ __forceinline__ void pair(int j, unsigned (&high)[2][4], unsigned (&low)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::byte* from = words_ + 8 * (i % 2) * stride_ + 16 * (i / 2);
      if constexpr (is_affine(type)) {
        affine(from, i, j, high, low);
      } else {
        signed_levels(from, i, j, high, low);
      }
    }
  }

 private:
  // One instruction each, where the compiler would take two.
  static __device__ __forceinline__ unsigned byte_of(unsigned word, int i) {
    unsigned byte;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(byte) : "r"(word), "r"(0x4440 + i));
    return byte;
  }
  static __device__ __forceinline__ unsigned signed_byte_of(unsigned word, int i) {
    unsigned byte;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(byte) : "r"(word), "r"(0x8880 + 0x1111 * i));  // 8: the sign, eight times
    return byte;
  }

  __device__ __forceinline__ void affine(const std::byte* from, int i, int j, unsigned (&high)[2][4],
                                         unsigned (&low)[2][4]) const {
    const unsigned packed = wide_word(from + (type == DType::q5_k ? 48 : 16) + 32 * j);
    unsigned fifth = 0;  // bit g of each byte is of group g
    if constexpr (type == DType::q5_k) fifth = wide_word(from + 16);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int g = 2 * j + e;
      unsigned level = packed >> 4 * e & 0x0F0F0F0FU;
      if constexpr (type == DType::q5_k) level |= (g < 4 ? fifth << (4 - g) : fifth >> (g - 4)) & 0x10101010U;
      high[e][i] = level * byte_of(high_[i % 2][g / 4], g % 4);
      low[e][i] = level * byte_of(low_[i % 2][g / 4], g % 4);
    }
  }

  __device__ __forceinline__ void signed_levels(const std::byte* from, int i, int j, unsigned (&high)[2][4],
                                                unsigned (&low)[2][4]) const {
    const int h = j / 2;
    const int p = j % 2;
    const unsigned packed = wide_word(from + 64 * h + 32 * p);
    const unsigned bits = wide_word(from + 128 + 32 * h) >> 2 * p;
    const unsigned level[2] = {(packed & 0x0F0F0F0FU) | (bits << 4 & 0x30303030U),
                               (packed >> 4 & 0x0F0F0F0FU) | (bits & 0x30303030U)};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      // Sixteen scales a column: of k-step s, of its first and second half, bytes 2 s and 2 s + 1.
      const unsigned word = h == 0 ? high_[i % 2][e] : low_[i % 2][e];
      const unsigned scale = signed_byte_of(word, 2 * p + i / 2);
      const unsigned raised = 0x80008000U - scale * 0x00200020U;
      const unsigned even = __byte_perm(level[e], 0, 0x4240) * scale + raised;
      const unsigned odd = __byte_perm(level[e], 0, 0x4341) * scale + raised;
      low[e][i] = __byte_perm(even, odd, 0x6240);
      high[e][i] = __byte_perm(even, odd, 0x7351) ^ 0x80808080U;
    }
  }

  const std::byte* words_;
  int stride_;
  unsigned high_[2][2];  // affine: the scales' digits; q6_k: scales of k-steps 0 to 3
  unsigned low_[2][2];   // q6_k: of k-steps 4 to 7
};

}  // namespace conclave::cuda
