// One chunk of 256 activations as int8, by one warp: lane l has the values 8l .. 8l + 7.
#pragma once

#include "backends/cuda/element.cuh"
#include "backends/cuda/mma.cuh"

namespace conclave::cuda {

struct QuantizedLane {
  int low;  // values 0 .. 3 of the lane's eight
  int high;
  float scale;  // of the chunk; NaN where it has no int8 form
};

// The lane's eight values of chunk c of a row of k; zeros past its end.
__device__ __forceinline__ void load_chunk(DType type, const std::byte* row, std::int64_t c, std::int64_t k, int lane,
                                           float* v) {
  const std::int64_t first = 256 * c + 8 * lane;
  if (type == DType::f32 && first + 8 <= k && reinterpret_cast<std::uintptr_t>(row) % 16 == 0) {
    const auto* from = reinterpret_cast<const float4*>(row) + first / 4;
    const float4 a = from[0];
    const float4 b = from[1];
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = first + i < k ? load_float(type, row, first + i) : 0.0F;
}

// x / 127, x from 2^-100 on: the steps of IEEE division without its other cases, for which it would branch.
__device__ __forceinline__ float divide_by_127(float x) {
  constexpr float kInverse = 1.0F / 127.0F;
  const float y = x * kInverse;
  return fmaf(fmaf(-127.0F, y, x), kInverse, y);
}
// 1 / x, x from 2^-120 to 2^120, likewise.
__device__ __forceinline__ float plain_inverse(float x) {
  const float y = reciprocal(x);
  return fmaf(y, fmaf(-x, y, 1.0F), y);
}

// The low bytes of four words.
__device__ __forceinline__ int low_bytes(const unsigned* word) {
  return static_cast<int>(
      __byte_perm(__byte_perm(word[0], word[1], 0x0040), __byte_perm(word[2], word[3], 0x0040), 0x5410));
}

// All 32 lanes together.
__device__ __forceinline__ QuantizedLane quantize_lane(const float* v) {
  constexpr unsigned kInfinity = 0x7F800000U;
  constexpr unsigned kLeast = 0x0D800000U;  // 2^-100
  constexpr float kWhole = 12582912.0F;     // 1.5 * 2^23: what is added to it becomes an integer, in its lowest bits
  float larger[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) larger[i] = max_or_nan(fabsf(v[i]), fabsf(v[i + 4]));
  const float largest = max_or_nan(max_or_nan(larger[0], larger[1]), max_or_nan(larger[2], larger[3]));
  // Magnitudes compare as integers; a NaN is above infinity.
  const unsigned bits = __reduce_max_sync(0xFFFFFFFFU, __float_as_uint(largest));
  const bool usable = bits == 0 || (bits >= kLeast && bits < kInfinity);
  const float step = divide_by_127(__uint_as_float(bits));
  const float inverse = bits == 0 ? 0.0F : plain_inverse(step);
  unsigned q[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) q[i] = __float_as_uint(v[i] * inverse + kWhole);
  return {.low = usable ? low_bytes(q) : 0, .high = usable ? low_bytes(q + 4) : 0, .scale = usable ? step : NAN};
}

// The sum of the 16 values that two neighbouring lanes have. All 32 lanes together.
__device__ __forceinline__ int sum_of_two(const QuantizedLane& q) {
  const int sum = __dp4a(q.low, 0x01010101, __dp4a(q.high, 0x01010101, 0));
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

}  // namespace conclave::cuda
