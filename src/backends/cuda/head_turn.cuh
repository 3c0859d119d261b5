// A head on its way through a warp, a lane with eight neighbouring elements of it: its norm and its rotation.
#pragma once

#include "backends/cuda/rope_turn.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {

// As rms_norm does a short row; `words`: the lane's of the weight. By whole warps.
__device__ __forceinline__ void norm_short_run(DType type, const RunWords& words, int d, float eps, Run& run) {
  const NormScale scale = norm_scale(d, eps, [&](float factor) {
    float sum = 0;
    add_squares(run, factor, sum);
    return fold_warp(sum, [](float a, float b) { return a + b; });
  });
  Run by;
  as_floats(type, words, by);
  norm_run(run, by, scale, run);
}

// The other element of each pair, and the pair's turn. `row` is the warp's own in shared memory.
__device__ __forceinline__ void find_pairs(const RopeArgs& rope, const float2* turns, const float* row, const Run& run,
                                           int first, Run& other, float2 (&by)[kRunLength]) {
  const auto n_rot = static_cast<int>(rope.n_rot);
  const int half = n_rot / 2;
  if (rope.neox && half % 4 == 0) {
#pragma unroll
    for (int j = 0; j < kRunLength; j += 4) {
      const int i = first + j;
      if (i >= n_rot) continue;
      const int pair = i < half ? i : i - half;
      const float4 four = *reinterpret_cast<const float4*>(row + (i < half ? i + half : pair));
      const float4 low = *reinterpret_cast<const float4*>(turns + pair);
      const float4 high = *reinterpret_cast<const float4*>(turns + pair + 2);
      other[j] = four.x, other[j + 1] = four.y, other[j + 2] = four.z, other[j + 3] = four.w;
      by[j] = {low.x, low.y}, by[j + 1] = {low.z, low.w}, by[j + 2] = {high.x, high.y}, by[j + 3] = {high.z, high.w};
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    const int i = first + j;
    if (i >= n_rot) continue;
    if (rope.neox) {
      other[j] = row[i < half ? i + half : i - half];
      by[j] = turns[i < half ? i : i - half];
    } else {
      other[j] = run[j ^ 1];
      by[j] = turns[i / 2];
    }
  }
}

// By whole warps.
__device__ __forceinline__ void rotate_run(const RopeArgs& rope, const float2* turns, float* row, int first, int d,
                                           Run& run) {
  const auto n_rot = static_cast<int>(rope.n_rot);
  __syncwarp();  // nobody still reads the row before this one
  if (first < d) store_run<true>(DType::f32, reinterpret_cast<std::byte*>(row), first, d, run);
  __syncwarp();
  Run other;
  float2 by[kRunLength];
  find_pairs(rope, turns, row, run, first, other, by);
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    const int i = first + j;
    if (i >= n_rot) continue;
    const bool is_first = rope.neox ? i < n_rot / 2 : j % 2 == 0;
    run[j] = is_first ? rotated(run[j], other[j], by[j]).x : rotated(other[j], run[j], by[j]).y;
  }
}

}  // namespace conclave::cuda
