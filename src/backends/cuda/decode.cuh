// One weight of a row, of any weight type, as f32: bit for bit what src/quant decodes, which also has the pictures of
// the blocks. The slow path of whoever has no better one, and embed's.
//
// A row needs the alignment of its type and no more, so that fields are read as bytes, or as the 16-bit words that
// blocks of even size have at even offsets. Every product and sum is rounded by itself (--fmad=false).
#pragma once

#include <cuda_fp16.h>

#include "backends/cuda/view.h"
#include "quant/iq4_levels.h"

namespace conclave::cuda {

__device__ __forceinline__ unsigned byte_at(const std::byte* block, unsigned i) {
  return static_cast<unsigned>(block[i]);
}
__device__ __forceinline__ int signed_at(const std::byte* block, unsigned i) {
  return reinterpret_cast<const std::int8_t*>(block)[i];
}
__device__ __forceinline__ unsigned word_at(const std::byte* block, unsigned i) {
  return *reinterpret_cast<const std::uint16_t*>(block + i);
}
__device__ __forceinline__ float half_at(const std::byte* block, unsigned i) {
  return __half2float(__ushort_as_half(static_cast<std::uint16_t>(word_at(block, i))));
}

// Level i of the 32 in 16 bytes (quant/nibbles.h).
__device__ __forceinline__ unsigned nibble_at(const std::byte* qs, unsigned i) {
  return (byte_at(qs, i % 16) >> (4 * (i / 16))) & 0x0F;
}

// kIq4Levels as eight levels to a word: a table in registers.
constexpr std::uint64_t packed_iq4_levels(std::size_t first) {
  std::uint64_t packed = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    packed |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(kIq4Levels[first + i])) << (8 * i);
  }
  return packed;
}
inline constexpr std::uint64_t kIq4LowLevels = packed_iq4_levels(0);
inline constexpr std::uint64_t kIq4HighLevels = packed_iq4_levels(8);

__device__ __forceinline__ float iq4_level(unsigned index) {
  const std::uint64_t levels = index < 8 ? kIq4LowLevels : kIq4HighLevels;
  return static_cast<float>(static_cast<std::int8_t>(levels >> (8 * (index % 8))));
}

// Twice an e2m1 number, an integer; minus zero is plus zero.
__device__ __forceinline__ float mxfp4_doubled(unsigned code) {
  const int magnitude = static_cast<int>((0xC8643210U >> (4 * (code % 8))) & 0x0F);
  return static_cast<float>(code < 8 ? magnitude : -magnitude);
}
// 2^(e - 128): subnormal for 0 and 1.
__device__ __forceinline__ float mxfp4_half_scale(unsigned e) {
  return __uint_as_float(e < 2 ? 0x00200000U << e : (e - 1) << 23);
}

// Group g's 6-bit scale and minimum in the 12 bytes of quant/k_scales.h.
struct KScale {
  float scale;
  float min;
};
__device__ __forceinline__ KScale k_scale_at(const std::byte* packed, unsigned g) {
  if (g < 4) {
    return {static_cast<float>(byte_at(packed, g) & 0x3F), static_cast<float>(byte_at(packed, g + 4) & 0x3F)};
  }
  const unsigned low = byte_at(packed, g + 4);
  return {static_cast<float>((low & 0x0F) | ((byte_at(packed, g - 4) >> 6) << 4)),
          static_cast<float>((low >> 4) | ((byte_at(packed, g) >> 6) << 4))};
}

// Weight i of a block, one function per format; `i` is below the block's length.
__device__ __forceinline__ float q4_0_weight(const std::byte* b, unsigned i) {
  return half_at(b, 0) * static_cast<float>(static_cast<int>(nibble_at(b + 2, i)) - 8);
}
__device__ __forceinline__ float q4_1_weight(const std::byte* b, unsigned i) {
  return half_at(b, 0) * static_cast<float>(nibble_at(b + 4, i)) + half_at(b, 2);
}
__device__ __forceinline__ float q5_0_weight(const std::byte* b, unsigned i) {
  const unsigned high = (byte_at(b, 2 + i / 8) >> (i % 8)) & 1;
  return half_at(b, 0) * static_cast<float>(static_cast<int>(nibble_at(b + 6, i) | (high << 4)) - 16);
}
__device__ __forceinline__ float q5_1_weight(const std::byte* b, unsigned i) {
  const unsigned high = (byte_at(b, 4 + i / 8) >> (i % 8)) & 1;
  return half_at(b, 0) * static_cast<float>(nibble_at(b + 8, i) | (high << 4)) + half_at(b, 2);
}
__device__ __forceinline__ float q8_0_weight(const std::byte* b, unsigned i) {
  return static_cast<float>(signed_at(b, 2 + i)) * half_at(b, 0);
}

__device__ __forceinline__ float q2_k_weight(const std::byte* b, unsigned i) {
  const unsigned packed = byte_at(b, i / 16);
  const float scale = half_at(b, 80) * static_cast<float>(packed & 0x0F);
  const float min = half_at(b, 82) * static_cast<float>(packed >> 4);
  const unsigned level = (byte_at(b, 16 + 32 * (i / 128) + i % 32) >> (2 * ((i / 32) % 4))) & 3;
  return scale * static_cast<float>(level) - min;
}
__device__ __forceinline__ float q3_k_weight(const std::byte* b, unsigned i) {
  const unsigned g = i / 16;
  const unsigned scale_low = (byte_at(b, 96 + g % 8) >> (4 * (g / 8))) & 0x0F;
  const unsigned scale_high = (byte_at(b, 104 + g % 4) >> (2 * (g / 4))) & 3;
  const float scale = half_at(b, 108) * static_cast<float>(static_cast<int>(scale_low | (scale_high << 4)) - 32);
  const int low = static_cast<int>((byte_at(b, 32 + 32 * (i / 128) + i % 32) >> (2 * ((i / 32) % 4))) & 3);
  const bool high = ((byte_at(b, i % 32) >> (i / 32)) & 1) != 0;
  return scale * static_cast<float>(high ? low : low - 4);
}
__device__ __forceinline__ float q4_k_weight(const std::byte* b, unsigned i) {
  const unsigned g = i / 32;
  const KScale k = k_scale_at(b + 4, g);
  const float scale = half_at(b, 0) * k.scale;
  const float min = half_at(b, 2) * k.min;
  const unsigned level = (byte_at(b, 16 + 32 * (g / 2) + i % 32) >> (4 * (g % 2))) & 0x0F;
  return scale * static_cast<float>(level) - min;
}
__device__ __forceinline__ float q5_k_weight(const std::byte* b, unsigned i) {
  const unsigned g = i / 32;
  const KScale k = k_scale_at(b + 4, g);
  const float scale = half_at(b, 0) * k.scale;
  const float min = half_at(b, 2) * k.min;
  const unsigned low = (byte_at(b, 48 + 32 * (g / 2) + i % 32) >> (4 * (g % 2))) & 0x0F;
  const unsigned high = (byte_at(b, 16 + i % 32) >> g) & 1;
  return scale * static_cast<float>(low | (high << 4)) - min;
}
__device__ __forceinline__ float q6_k_weight(const std::byte* b, unsigned i) {
  const unsigned half = i / 128;
  const unsigned low = (byte_at(b, 64 * half + i % 64) >> (4 * ((i / 64) % 2))) & 0x0F;
  const unsigned high = (byte_at(b, 128 + 32 * half + i % 32) >> (2 * ((i / 32) % 4))) & 3;
  const float scale = half_at(b, 208) * static_cast<float>(signed_at(b, 192 + i / 16));
  return scale * static_cast<float>(static_cast<int>(low | (high << 4)) - 32);
}

__device__ __forceinline__ float iq4_nl_weight(const std::byte* b, unsigned i) {
  return half_at(b, 0) * iq4_level(nibble_at(b + 2, i));
}
__device__ __forceinline__ float iq4_xs_weight(const std::byte* b, unsigned i) {
  const unsigned g = i / 32;
  const unsigned low = (byte_at(b, 4 + g / 2) >> (4 * (g % 2))) & 0x0F;
  const unsigned high = (word_at(b, 2) >> (2 * g)) & 3;
  const float scale = half_at(b, 0) * static_cast<float>(static_cast<int>(low | (high << 4)) - 32);
  return scale * iq4_level(nibble_at(b + 8 + 16 * g, i % 32));
}
__device__ __forceinline__ float mxfp4_weight(const std::byte* b, unsigned i) {
  return mxfp4_half_scale(byte_at(b, 0)) * mxfp4_doubled(nibble_at(b + 1, i));
}

// Element k of a row.
__device__ __forceinline__ float decode_weight(DType type, const std::byte* row, std::int64_t k) {
  const auto at_32 = static_cast<unsigned>(k) % 32;
  const auto at_256 = static_cast<unsigned>(k) % 256;
  switch (type) {
    case DType::f32:
      return reinterpret_cast<const float*>(row)[k];
    case DType::f16:
      return __half2float(__ushort_as_half(reinterpret_cast<const std::uint16_t*>(row)[k]));
    case DType::bf16:
      return __uint_as_float(static_cast<std::uint32_t>(reinterpret_cast<const std::uint16_t*>(row)[k]) << 16);
    case DType::q4_0:
      return q4_0_weight(row + k / 32 * 18, at_32);
    case DType::q4_1:
      return q4_1_weight(row + k / 32 * 20, at_32);
    case DType::q5_0:
      return q5_0_weight(row + k / 32 * 22, at_32);
    case DType::q5_1:
      return q5_1_weight(row + k / 32 * 24, at_32);
    case DType::q8_0:
      return q8_0_weight(row + k / 32 * 34, at_32);
    case DType::q2_k:
      return q2_k_weight(row + k / 256 * 84, at_256);
    case DType::q3_k:
      return q3_k_weight(row + k / 256 * 110, at_256);
    case DType::q4_k:
      return q4_k_weight(row + k / 256 * 144, at_256);
    case DType::q5_k:
      return q5_k_weight(row + k / 256 * 176, at_256);
    case DType::q6_k:
      return q6_k_weight(row + k / 256 * 210, at_256);
    case DType::iq4_nl:
      return iq4_nl_weight(row + k / 32 * 18, at_32);
    case DType::iq4_xs:
      return iq4_xs_weight(row + k / 256 * 136, at_256);
    case DType::mxfp4:
      return mxfp4_weight(row + k / 32 * 17, at_32);
    case DType::i32:
    case DType::u32:
      break;
  }
  return 0;
}

}  // namespace conclave::cuda
