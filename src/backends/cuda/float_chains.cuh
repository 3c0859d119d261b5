// The 32 chains of an output in the canonical order, one a lane: what they add, how they fold, where the sums go.
#pragma once

#include "backends/cuda/element.cuh"
#include "backends/cuda/float_rows_plan.h"

namespace conclave::cuda {

// 32 values of each row and column.
template <DType type, int kRows, int kColumns, int kPitch>
__device__ __forceinline__ void add_products(const std::byte* xs, const std::byte* ws, int i,
                                             float (&chains)[kRows * kColumns]) {
  float x[kRows];
  float w[kColumns];
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = load_float(DType::f32, xs + r * kPitch, i);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) w[c] = load_float(type, ws + c * kPitch, i);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) chains[r * kColumns + c] = fmaf(x[r], w[c], chains[r * kColumns + c]);
  }
}

// Folds each of `held` values as fold_lanes (plain_dot.cuh) does. Lanes that would both go on with the same sums share
// them instead: a lane is left with values lane * held / 32 and on.
template <int held, int half = kWarp / 2>
__device__ __forceinline__ void fold_many(float* values, int lane) {
  if constexpr (held > 1) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int i = 0; i < held / 2; ++i) {
      const float kept = upper ? values[i + held / 2] : values[i];
      const float sent = upper ? values[i] : values[i + held / 2];
      values[i] = kept + __shfl_xor_sync(kAllLanes, sent, half);
    }
  } else {
    values[0] += __shfl_xor_sync(kAllLanes, values[0], half);
  }
  if constexpr (half > 1) fold_many<held / 2 + held % 2, half / 2>(values, lane);
}

__device__ __forceinline__ void store_output(const FloatRowsArgs& args, int row, int column, float y) {
  if (args.bias != nullptr) y += load_float(args.bias_type, args.bias, column);
  store_float(args.out_type, args.out + row * args.out_stride, column, y);
}

// put(r, c, y) for the outputs that fold_many() left the lane: row r, column c of those that the warp has.
template <int kChains, int kColumns, class Put>
__device__ __forceinline__ void store_folded(const float (&chains)[kChains], Put&& put) {
  constexpr int kLeft = kChains > kWarp ? kChains / kWarp : 1;
  constexpr int kSharers = kChains < kWarp ? kWarp / kChains : 1;
  const int lane = threadIdx.x % kWarp;
  if (lane % kSharers != 0) return;
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const int at = lane / kSharers * kLeft + i;
    put(at / kColumns, at % kColumns, chains[i]);
  }
}

}  // namespace conclave::cuda
