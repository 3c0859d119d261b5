// One chunk of 256 activations as int8, by one warp: lane l has the values 8l .. 8l + 7.
#pragma once

#include "backends/cuda/element.cuh"

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

// All 32 lanes together.
__device__ __forceinline__ QuantizedLane quantize_lane(const float* v) {
  float largest = 0.0F;
  bool finite = true;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    largest = fmaxf(largest, fabsf(v[i]));
    finite = finite && isfinite(v[i]);
  }
  // Magnitudes compare as integers.
  largest = __uint_as_float(__reduce_max_sync(0xFFFFFFFFU, __float_as_uint(largest)));
  const bool usable = __all_sync(0xFFFFFFFFU, finite) != 0 && (largest == 0.0F || largest >= 0x1p-100F);
  const float step = usable ? largest / 127.0F : 0.0F;
  const float inverse = step > 0.0F ? 1.0F / step : 0.0F;
  int q[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) q[i] = usable ? __float2int_rn(v[i] * inverse) : 0;
  QuantizedLane out;
  out.low = (q[0] & 0xFF) | (q[1] & 0xFF) << 8 | (q[2] & 0xFF) << 16 | q[3] << 24;
  out.high = (q[4] & 0xFF) | (q[5] & 0xFF) << 8 | (q[6] & 0xFF) << 16 | q[7] << 24;
  out.scale = usable ? step : NAN;
  return out;
}

// The sum of the 16 values that two neighbouring lanes have. All 32 lanes together.
__device__ __forceinline__ int sum_of_two(const QuantizedLane& q) {
  const int sum = __dp4a(q.low, 0x01010101, __dp4a(q.high, 0x01010101, 0));
  return sum + __shfl_xor_sync(kAllLanes, sum, 1);
}

}  // namespace conclave::cuda
