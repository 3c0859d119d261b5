// How keys and values go into the cache, for kv_write and for the kernel that also norms and rotates heads.
#pragma once

#include "backends/cuda/kv_place.cuh"
#include "backends/cuda/kv_write_plan.h"

namespace conclave::cuda {

inline constexpr int kBlockValues = 32;  // of q8_0: a scale in f16, then the levels
inline constexpr int kBlockBytes = 34;

// Tokens with one number have one place; -1: none.
__device__ __forceinline__ std::int64_t place_number(const KvWriteArgs& args, std::int64_t t) {
  const DevicePlace at = place_of(args.kv, __ldcg(&int_at(args.seqs, t)), __ldcg(&int_at(args.positions, t)));
  return at.page < 0 ? -1 : static_cast<std::int64_t>(at.page) << 32 | at.slot;
}

// Where token t goes. A place that a later token names is that token's: -1. By the whole block, where nobody has looked
// before; a barrier.
template <int threads>
__device__ __forceinline__ std::int64_t own_place(const KvWriteArgs& args, std::int64_t t) {
  if (args.places != nullptr) {
    const std::int64_t place = args.places[t];
    __syncthreads();
    return place;
  }
  const std::int64_t place = place_number(args, t);
  const std::int64_t n_live = live_rows(args.live, args.k.dims[0]);
  bool replaced = false;
  for (std::int64_t later = t + 1 + threadIdx.x; later < n_live; later += threads) {
    replaced = replaced || place_number(args, later) == place;
  }
  return __syncthreads_or(replaced) != 0 ? -1 : place;
}

// As src/quant/half.h: a NaN keeps its sign and the upper bits of its payload, and becomes quiet.
__device__ __forceinline__ float widened(DType type, const std::byte* row, std::int64_t i) {
  if (type == DType::f16) {
    const std::uint32_t bits = reinterpret_cast<const std::uint16_t*>(row)[i];
    if ((bits & 0x7FFFU) > 0x7C00U) {
      return __uint_as_float((bits & 0x8000U) << 16 | 0x7FC00000U | (bits & 0x3FFU) << 13);
    }
  }
  return load_float(type, row, i);
}
__device__ __forceinline__ std::uint16_t narrowed(DType type, float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    return static_cast<std::uint16_t>(type == DType::f16 ? (bits >> 16 & 0x8000U) | 0x7E00U | (bits >> 13 & 0x1FFU)
                                                         : bits >> 16 | 0x40U);
  }
  return type == DType::f16 ? __half_as_ushort(__float2half_rn(value))
                            : __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ __forceinline__ void narrow(DType type, std::byte* row, std::int64_t i, float value) {
  if (type == DType::f32) {
    reinterpret_cast<float*>(row)[i] = value;
  } else {
    reinterpret_cast<std::uint16_t*>(row)[i] = narrowed(type, value);
  }
}

// A warp encodes a block as ops/kv_block.h does, step for step. `to` is aligned to 2 bytes.
__device__ __forceinline__ void put_block(float x, int lane, std::byte* to) {
  const bool finite = __all_sync(0xFFFFFFFFU, isfinite(x));
  float largest = finite ? fabsf(x) : 0.0F;
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, step));
  const float d = largest / 127.0F;
  const float inverse = d > 0 && isfinite(1.0F / d) ? 1.0F / d : 0.0F;
  float level = 0;
  if (finite) level = fminf(fmaxf((x * inverse + 0x1.8p23F) - 0x1.8p23F, -127.0F), 127.0F);
  to[2 + lane] = static_cast<std::byte>(static_cast<std::int8_t>(level));
  if (lane == 0) {
    *reinterpret_cast<std::uint16_t*>(to) =
        finite ? __half_as_ushort(__float2half_rn(d)) : static_cast<std::uint16_t>(0x7E00);
  }
}

// Element i of a row of the cache. For q8_0 the lanes of a warp come together, with 32 neighbours.
__device__ __forceinline__ void put(DType type, std::byte* row, std::int64_t i, float x) {
  if (type == DType::q8_0) {
    put_block(x, static_cast<int>(threadIdx.x % kWarp), row + i / kBlockValues * kBlockBytes);
  } else {
    narrow(type, row, i, x);
  }
}

// Elements i .. i+7 of a row of f32, f16 or bf16 that takes vectors.
__device__ __forceinline__ void put_run(DType type, std::byte* row, std::int64_t i, const float (&x)[8]) {
  if (type == DType::f32) {
    auto* to = reinterpret_cast<float4*>(row + i * 4);
    to[0] = {x[0], x[1], x[2], x[3]};
    to[1] = {x[4], x[5], x[6], x[7]};
    return;
  }
  unsigned word[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) word[j] = narrowed(type, x[2 * j]) | unsigned{narrowed(type, x[2 * j + 1])} << 16;
  *reinterpret_cast<uint4*>(row + i * 2) = {word[0], word[1], word[2], word[3]};
}

}  // namespace conclave::cuda
