// A chunk of 256 weights of a block format, as the 32 lanes of a warp hold it: eight weights a lane, as two quads of int8
// levels, with what multiplies their sums. The formats' bits are drawn in src/quant; the arithmetic they take part in is
// that of product_plan.h.
//
// Blocks are read as they are stored, at any address: two bytes at a time, mxfp4 one.
#pragma once

#include <cuda_fp16.h>

#include "tensor/dtype.h"

namespace conclave::cuda {

struct LaneLevels {
  int quad[2];   // weights first .. first + 3 and second .. second + 3, as int8
  int scale[2];  // superblocks: of the quad's group
  int min[2];    // q2_k q4_k q5_k: likewise
  float d;       // of the superblock, or of the lane's block
  float m;       // what multiplies the minimums (q2_k q4_k q5_k), or the block's own (q4_1 q5_1)
};

__device__ __forceinline__ int u8_at(const std::byte* p) {
  return static_cast<int>(*reinterpret_cast<const std::uint8_t*>(p));
}
__device__ __forceinline__ std::uint32_t u16_at(const std::byte* p) {
  return *reinterpret_cast<const std::uint16_t*>(p);
}
__device__ __forceinline__ std::uint32_t u32_at(const std::byte* p) {
  return u16_at(p) | u16_at(p + 2) << 16;
}
__device__ __forceinline__ float half_at(const std::byte* p) {
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(u16_at(p))));
}

// Byte by byte: x - offset, where no byte of x passes 127.
__device__ __forceinline__ int less(std::uint32_t x, std::uint32_t offset) {
  return static_cast<int>(((x | 0x80808080U) - offset * 0x01010101U) ^ 0x80808080U);
}
// Bits 0 to 3 of x into bit 4 of each byte.
__device__ __forceinline__ std::uint32_t fifth_bits(std::uint32_t x) {
  return ((x & 0xFU) * 0x00204081U & 0x01010101U) << 4;
}
// Each byte of `index` (0 to 15) looked up in a table of 16 bytes.
__device__ __forceinline__ int lookup(std::uint32_t index, std::uint32_t t0, std::uint32_t t1, std::uint32_t t2,
                                      std::uint32_t t3) {
  const std::uint32_t select = (index & 0x7U) | (index >> 4 & 0x70U) | (index >> 8 & 0x700U) | (index >> 12 & 0x7000U);
  const std::uint32_t high = (index >> 3 & 0x01010101U) * 0xFFU;
  return static_cast<int>((__byte_perm(t0, t1, select) & ~high) | (__byte_perm(t2, t3, select) & high));
}
__device__ __forceinline__ int iq4_levels(
    std::uint32_t index) {  // -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113
  return lookup(index, 0xBFAD9881U, 0xF6EADDCFU, 0x26190D01U, 0x71594535U);
}
__device__ __forceinline__ int mxfp4_levels(std::uint32_t index) {  // 0 1 2 3 4 6 8 12 and their negatives
  return lookup(index, 0x03020100U, 0x0C080604U, 0xFDFEFF00U, 0xF4F8FAFCU);
}
// 2^(e - 128): subnormal for e of 0 and 1.
__device__ __forceinline__ float mxfp4_scale(int e) {
  return __uint_as_float(e >= 2 ? static_cast<std::uint32_t>(e - 1) << 23 : 0x00200000U << e);
}

// A group's 6-bit scale and minimum out of the 12 bytes of src/quant/k_scales.h, as three words.
__device__ __forceinline__ int k_scale(std::uint32_t s, std::uint32_t high, int g) {
  const int shift = 8 * (g & 3);
  if (g < 4) return static_cast<int>(s >> shift & 0x3FU);
  return static_cast<int>((high >> shift & 0xFU) | (s >> shift & 0xC0U) >> 2);
}
__device__ __forceinline__ int k_min(std::uint32_t m, std::uint32_t high, int g) {
  const int shift = 8 * (g & 3);
  if (g < 4) return static_cast<int>(m >> shift & 0x3FU);
  return static_cast<int>((high >> shift & 0xF0U) >> 4 | (m >> shift & 0xC0U) >> 2);
}

// What is known of a format when a kernel is compiled.
template <DType type>
struct Layout {
  static constexpr bool kSuper = type == DType::q2_k || type == DType::q3_k || type == DType::q4_k ||
                                 type == DType::q5_k || type == DType::q6_k || type == DType::iq4_xs;
  static constexpr bool kAffine =
      type == DType::q2_k || type == DType::q4_k || type == DType::q5_k || type == DType::q4_1 || type == DType::q5_1;
  static constexpr int kBytes = type == DType::q2_k     ? 84
                                : type == DType::q3_k   ? 110
                                : type == DType::q4_k   ? 144
                                : type == DType::q5_k   ? 176
                                : type == DType::q6_k   ? 210
                                : type == DType::iq4_xs ? 136
                                : type == DType::q4_1   ? 20
                                : type == DType::q5_0   ? 22
                                : type == DType::q5_1   ? 24
                                : type == DType::q8_0   ? 34
                                : type == DType::mxfp4  ? 17
                                                        : 18;  // q4_0, iq4_nl
  static constexpr int kChunkBytes = kSuper ? kBytes : 8 * kBytes;

  // The first weights of a lane's two quads.
  __device__ static __forceinline__ int first(int lane) {
    if constexpr (type == DType::q4_k || type == DType::q5_k) return 64 * (lane / 8) + 4 * (lane % 8);
    if constexpr (type == DType::q6_k) return 128 * (lane / 16) + 4 * (lane % 16);
    if constexpr (type == DType::q2_k || type == DType::q3_k) {
      return 128 * (lane / 16) + 64 * (lane / 8 % 2) + 4 * (lane % 8);
    }
    return 32 * (lane / 4) + 4 * (lane % 4);
  }
  __device__ static __forceinline__ int second(int lane) {
    if constexpr (type == DType::q6_k) return first(lane) + 64;
    if constexpr (type == DType::q2_k || type == DType::q3_k || type == DType::q4_k || type == DType::q5_k) {
      return first(lane) + 32;
    }
    return first(lane) + 16;
  }
};

// `chunk`: where its superblock, or the first of its eight blocks, is stored. A lane whose block is past the end of the
// row must not ask.
template <DType type>
__device__ __forceinline__ LaneLevels unpack(const std::byte* chunk, int lane) {
  using L = Layout<type>;
  LaneLevels w{};
  const int first = L::first(lane);
  if constexpr (type == DType::q4_k || type == DType::q5_k) {
    const std::uint32_t factors = u32_at(chunk);
    w.d = __half2float(__ushort_as_half(static_cast<std::uint16_t>(factors)));
    w.m = __half2float(__ushort_as_half(static_cast<std::uint16_t>(factors >> 16)));
    const std::uint32_t scales = u32_at(chunk + 4);
    const std::uint32_t mins = u32_at(chunk + 8);
    const std::uint32_t high = u32_at(chunk + 12);
    const int g = 2 * (lane / 8);
    for (int i = 0; i < 2; ++i) {
      w.scale[i] = k_scale(scales, high, g + i);
      w.min[i] = k_min(mins, high, g + i);
    }
    const std::uint32_t packed = u32_at(chunk + (type == DType::q4_k ? 16 : 48) + 4 * lane);
    std::uint32_t low = packed & 0x0F0F0F0FU;
    std::uint32_t up = packed >> 4 & 0x0F0F0F0FU;
    if constexpr (type == DType::q5_k) {
      const std::uint32_t fifth = u32_at(chunk + 16 + 4 * (lane % 8)) >> g;
      low |= (fifth & 0x01010101U) << 4;
      up |= (fifth >> 1 & 0x01010101U) << 4;
    }
    w.quad[0] = static_cast<int>(low);
    w.quad[1] = static_cast<int>(up);
  } else if constexpr (type == DType::q6_k) {
    const int half = lane / 16;
    const int x = 4 * (lane % 16);
    const std::uint32_t packed = u32_at(chunk + 64 * half + x);
    const std::uint32_t high = u32_at(chunk + 128 + 32 * half + x % 32) >> (x < 32 ? 0 : 2);
    w.quad[0] = less((packed & 0x0F0F0F0FU) | (high & 0x03030303U) << 4, 32);
    w.quad[1] = less((packed >> 4 & 0x0F0F0F0FU) | (high & 0x30303030U), 32);
    w.scale[0] = static_cast<std::int8_t>(u8_at(chunk + 192 + first / 16));
    w.scale[1] = static_cast<std::int8_t>(u8_at(chunk + 192 + first / 16 + 4));
    w.d = half_at(chunk + 208);
  } else if constexpr (type == DType::q2_k || type == DType::q3_k) {
    constexpr int kAt = type == DType::q2_k ? 16 : 32;
    const int half = lane / 16;
    const int shift = 4 * (lane / 8 % 2);
    const std::uint32_t packed = u32_at(chunk + kAt + 32 * half + 4 * (lane % 8)) >> shift;
    const std::uint32_t quad[2] = {packed & 0x03030303U, packed >> 2 & 0x03030303U};
    if constexpr (type == DType::q2_k) {
      for (int i = 0; i < 2; ++i) {
        const int bits = u8_at(chunk + first / 16 + 2 * i);
        w.scale[i] = bits & 0xF;
        w.min[i] = bits >> 4;
        w.quad[i] = static_cast<int>(quad[i]);
      }
      w.d = half_at(chunk + 80);
      w.m = half_at(chunk + 82);
    } else {
      const std::uint32_t third = u32_at(chunk + 4 * (lane % 8)) >> first / 32;
      for (int i = 0; i < 2; ++i) {
        w.quad[i] = less(quad[i] | (third >> i & 0x01010101U) << 2, 4);
        const int g = first / 16 + 2 * i;
        const int low = u8_at(chunk + 96 + g % 8) >> 4 * (g / 8) & 0xF;
        const int two = u8_at(chunk + 104 + g % 4) >> 2 * (g / 4) & 3;
        w.scale[i] = (low | two << 4) - 32;
      }
      w.d = half_at(chunk + 108);
    }
  } else if constexpr (type == DType::iq4_xs) {
    const int g = lane / 4;
    const std::uint32_t packed = u32_at(chunk + 8 + 4 * lane);
    w.quad[0] = iq4_levels(packed & 0x0F0F0F0FU);
    w.quad[1] = iq4_levels(packed >> 4 & 0x0F0F0F0FU);
    const int low = u8_at(chunk + 4 + g / 2) >> 4 * (g % 2) & 0xF;
    w.scale[0] = w.scale[1] = (low | static_cast<int>(u16_at(chunk + 2) >> 2 * g & 3U) << 4) - 32;
    w.d = half_at(chunk);
  } else if constexpr (type == DType::q8_0) {
    const std::byte* block = chunk + L::kBytes * (lane / 4);
    w.d = half_at(block);
    w.quad[0] = static_cast<int>(u32_at(block + 2 + 4 * (lane % 4)));
    w.quad[1] = static_cast<int>(u32_at(block + 18 + 4 * (lane % 4)));
  } else if constexpr (type == DType::mxfp4) {
    const std::byte* block = chunk + L::kBytes * (lane / 4);
    w.d = mxfp4_scale(u8_at(block));
    std::uint32_t packed = 0;
    for (int i = 0; i < 4; ++i) packed |= static_cast<std::uint32_t>(u8_at(block + 1 + 4 * (lane % 4) + i)) << 8 * i;
    w.quad[0] = mxfp4_levels(packed & 0x0F0F0F0FU);
    w.quad[1] = mxfp4_levels(packed >> 4 & 0x0F0F0F0FU);
  } else {  // q4_0 q4_1 q5_0 q5_1 iq4_nl
    constexpr bool kFive = type == DType::q5_0 || type == DType::q5_1;
    constexpr int kHead = L::kAffine ? 4 : 2;
    const std::byte* block = chunk + L::kBytes * (lane / 4);
    w.d = half_at(block);
    if constexpr (L::kAffine) w.m = half_at(block + 2);
    const std::uint32_t packed = u32_at(block + kHead + (kFive ? 4 : 0) + 4 * (lane % 4));
    std::uint32_t low = packed & 0x0F0F0F0FU;
    std::uint32_t up = packed >> 4 & 0x0F0F0F0FU;
    if constexpr (kFive) {
      const std::uint32_t fifth = u32_at(block + kHead);
      low |= fifth_bits(fifth >> 4 * (lane % 4));
      up |= fifth_bits(fifth >> (16 + 4 * (lane % 4)));
    }
    if constexpr (type == DType::iq4_nl) {
      w.quad[0] = iq4_levels(low);
      w.quad[1] = iq4_levels(up);
    } else if constexpr (L::kAffine) {
      w.quad[0] = static_cast<int>(low);
      w.quad[1] = static_cast<int>(up);
    } else {
      w.quad[0] = less(low, type == DType::q4_0 ? 8 : 16);
      w.quad[1] = less(up, type == DType::q4_0 ? 8 : 16);
    }
  }
  return w;
}

}  // namespace conclave::cuda
