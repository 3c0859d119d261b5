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

#include "backends/cuda/chunk_product.cuh"

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

// What a lane decodes of a superblock: words of its two columns, 8 apart, as stored.
template <DType type>
struct WideWords {
  unsigned packed[4][4];  // [pair][word of a fragment]
  unsigned bits[4];       // upper bits: q5_k of all pairs, q6_k of pairs 0 and 1 or 2 and 3
  uint4 head[2];          // affine types, of a column: d, dmin and the 12 bytes of src/quant/k_scales.h
  uint2 scales[2];        // q6_k, of a column, likewise

  // `column`: the first column's superblock, 8 `stride` bytes before the second's; q6_k: ql, qh, scales side by side.
  __device__ __forceinline__ void load_head(const std::byte* column, int stride) {
#pragma unroll
    for (int half = 0; half < 2; ++half) head[half] = *reinterpret_cast<const uint4*>(column + 8 * half * stride);
  }
  __device__ __forceinline__ void load_pair(const std::byte* column, int stride, int lane, int j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::byte* from = column + 4 * (lane % 4) + 8 * (i % 2) * stride + 16 * (i / 2);
      packed[j][i] = wide_word(from + (type == DType::q4_k ? 16 : type == DType::q5_k ? 48 : 0) + 32 * j);
      if constexpr (type == DType::q5_k) bits[i] = wide_word(from + 16);
      if constexpr (type == DType::q6_k) bits[i] = wide_word(from + 128 + 32 * (j / 2));
    }
    if constexpr (type == DType::q6_k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scales[half] = *reinterpret_cast<const uint2*>(column + 8 * half * stride + 192 + 8 * (j / 2));
      }
    }
  }

  // Affine types: the minimums of a column's groups, as the left operand of wgmma_f16.
  __device__ __forceinline__ void mins(int lane, unsigned (&to)[4]) const {
    const int shift = 8 * (lane % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const unsigned first = head[half].z;
      const unsigned second = (head[half].w >> 4 & 0x0F0F0F0FU) | (first >> 2 & 0x30303030U);
      to[half] = doubled_half(first >> shift & 0x3FU);
      to[2 + half] = doubled_half(second >> shift & 0xFFU);
    }
  }
};

// Fragments of such words.
template <DType type>
class WideLevels {
 public:
  __device__ __forceinline__ explicit WideLevels(const WideWords<type>& words) : words_(words) {
    if constexpr (is_affine(type)) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned s = words.head[half].y;
        const unsigned first = s & 0x3F3F3F3FU;
        const unsigned second = (words.head[half].w & 0x0F0F0F0FU) | (s >> 2 & 0x30303030U);
        high_[half][0] = first >> 3 & 0x07070707U;
        high_[half][1] = second >> 3 & 0x07070707U;
        low_[half][0] = first & 0x07070707U;
        low_[half][1] = second & 0x07070707U;
      }
    }
  }

  __device__ __forceinline__ void pair(int j, unsigned (&high)[2][4], unsigned (&low)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (is_affine(type)) {
        affine(i, j, high, low);
      } else {
        signed_levels(i, j, high, low);
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

  __device__ __forceinline__ void affine(int i, int j, unsigned (&high)[2][4], unsigned (&low)[2][4]) const {
    const unsigned packed = words_.packed[j][i];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int g = 2 * j + e;
      unsigned level = packed >> 4 * e & 0x0F0F0F0FU;
      if constexpr (type == DType::q5_k) {  // bit g of each byte is of group g
        const unsigned fifth = words_.bits[i];
        level |= (g < 4 ? fifth << (4 - g) : fifth >> (g - 4)) & 0x10101010U;
      }
      high[e][i] = level * byte_of(high_[i % 2][g / 4], g % 4);
      low[e][i] = level * byte_of(low_[i % 2][g / 4], g % 4);
    }
  }

  __device__ __forceinline__ void signed_levels(int i, int j, unsigned (&high)[2][4], unsigned (&low)[2][4]) const {
    const int p = j % 2;
    const unsigned packed = words_.packed[j][i];
    const unsigned bits = words_.bits[i] >> 2 * p;
    const unsigned level[2] = {(packed & 0x0F0F0F0FU) | (bits << 4 & 0x30303030U),
                               (packed >> 4 & 0x0F0F0F0FU) | (bits & 0x30303030U)};
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      // Of k-step s, of its first and second half, bytes 2 s and 2 s + 1.
      const uint2& scales = words_.scales[i % 2];
      const unsigned scale = signed_byte_of(e == 0 ? scales.x : scales.y, 2 * p + i / 2);
      const unsigned raised = 0x80008000U - scale * 0x00200020U;
      const unsigned even = __byte_perm(level[e], 0, 0x4240) * scale + raised;
      const unsigned odd = __byte_perm(level[e], 0, 0x4341) * scale + raised;
      low[e][i] = __byte_perm(even, odd, 0x6240);
      high[e][i] = __byte_perm(even, odd, 0x7351) ^ 0x80808080U;
    }
  }

  const WideWords<type>& words_;
  unsigned high_[2][2];  // affine types: the scales' digits
  unsigned low_[2][2];
};

}  // namespace conclave::cuda
