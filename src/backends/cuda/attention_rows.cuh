// Attention in f32: softmax weights, staging of rows in shared memory.
#pragma once

#include "backends/cuda/attention_items.cuh"

namespace conclave::cuda {

// exp of what is not positive; 0 below ln(2^-126), so that no weight is subnormal. A NaN stays.
__device__ __forceinline__ float softmax_weight(float x) {
  return x < -87.33654F ? 0.0F : expf(x);
}

// Element i of a row of the cache.
__device__ __forceinline__ float load_cached(DType type, const std::byte* row, std::int64_t i) {
  if (type != DType::q8_0) return load_float(type, row, i);
  const std::byte* block = row + i / 32 * 34;  // a scale in f16, then 32 levels
  const float scale = __half2float(__ushort_as_half(*reinterpret_cast<const std::uint16_t*>(block)));
  return static_cast<float>(reinterpret_cast<const std::int8_t*>(block)[2 + i % 32]) * scale;
}

// Elements `from` to `from` + kSlice of the 64 rows of a unit as f32; zeros past the row's end `d` and for a position
// that is not there. Any type, any alignment.
template <int threads>
__device__ __forceinline__ void stage_cached(const View& pool, const long long* places, std::int64_t from,
                                             std::int64_t d, float* to) {
  const std::int64_t width = d - from;
#pragma unroll 8
  for (int n = static_cast<int>(threadIdx.x); n < kUnit * kSlice; n += threads) {
    const int j = n / kSlice;
    const int c = n % kSlice;
    const long long place = places[j];
    float value = 0;
    if (c < width && place >= 0) value = load_cached(pool.type, pool.data + place, from + c);
    to[j * kRowFloats + c] = value;
  }
}

// The same for 16-bit numbers in aligned words of 16 bytes, in two steps: asked for early, written down later.
template <int threads>
struct Fetched {
  static constexpr int kWords = kUnit * kSlice / 8 / threads;
  uint4 words[kWords];

  __device__ __forceinline__ void ask(const View& pool, const long long* places, std::int64_t from, std::int64_t d) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int n = static_cast<int>(threadIdx.x) + i * threads;
      const std::int64_t c = from + n % (kSlice / 8) * 8;
      const long long place = places[n / (kSlice / 8)];
      words[i] = {0, 0, 0, 0};
      if (c < d && place >= 0) words[i] = *reinterpret_cast<const uint4*>(pool.data + place + c * 2);
    }
  }
  __device__ __forceinline__ void write(DType type, float* to) const {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const int n = static_cast<int>(threadIdx.x) + i * threads;
      auto* at = reinterpret_cast<float4*>(to + n / (kSlice / 8) * kRowFloats + n % (kSlice / 8) * 8);
      const float2 a = pair(type, words[i].x);
      const float2 b = pair(type, words[i].y);
      const float2 c = pair(type, words[i].z);
      const float2 e = pair(type, words[i].w);
      at[0] = {a.x, a.y, b.x, b.y};
      at[1] = {c.x, c.y, e.x, e.y};
    }
  }

 private:
  static __device__ __forceinline__ float2 pair(DType type, std::uint32_t word) {
    if (type == DType::bf16) return {__uint_as_float(word << 16), __uint_as_float(word & 0xFFFF0000U)};
    return {__half2float(__ushort_as_half(static_cast<std::uint16_t>(word))),
            __half2float(__ushort_as_half(static_cast<std::uint16_t>(word >> 16)))};
  }
};

}  // namespace conclave::cuda
