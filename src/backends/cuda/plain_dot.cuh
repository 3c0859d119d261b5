// Products in floating point. Plain weights: 32 chains of fused multiply-adds over k mod 32, folded in halves. Rows
// that have no int8 form with block weights: decoded weights, summed in f64 in order, rounded once.
#pragma once

#include "backends/cuda/element.cuh"
#include "backends/cuda/weight_at.cuh"

namespace conclave::cuda {

__device__ __forceinline__ float fold_lanes(float chain) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) chain += __shfl_xor_sync(0xFFFFFFFFU, chain, half);
  return chain;
}

// Adds lanes `apart` from each other, which then have one half of the values each.
template <int held>
__device__ __forceinline__ void fold_between(float* values, int apart) {
  const bool upper = (threadIdx.x & apart) != 0;
#pragma unroll
  for (int i = 0; i < held / 2; ++i) {
    const float kept = upper ? values[i + held / 2] : values[i];
    const float sent = upper ? values[i] : values[i + held / 2];
    values[i] = kept + __shfl_xor_sync(kAllLanes, sent, apart);
  }
}

struct PlainDot {
  const std::byte* x;
  DType x_type;
  const std::byte* column;
  DType type;
  bool planes;
  std::int64_t k;
};

// By one thread: where a NaN or an infinity came up among rows that have none. What kernels of blocks of 32 in planes
// call has a form of its own: registers around a call are those that it uses.
template <bool in_blocks_of_32 = false>
static __device__ __noinline__ float plain_dot(const PlainDot& dot) {
  double sum = 0;
#pragma unroll 1
  for (std::int64_t k = 0; k < dot.k; ++k) {
    float w;
    if constexpr (in_blocks_of_32) {
      w = decode_planes_32(dot.type, dot.column, dot.k, k);
    } else {
      w = dot.planes ? decode_planes_q6_k(dot.column, dot.k, k) : decode_weight(dot.type, dot.column, k);
    }
    sum += static_cast<double>(load_float(dot.x_type, dot.x, k)) * static_cast<double>(w);
  }
  return static_cast<float>(sum);
}

}  // namespace conclave::cuda
