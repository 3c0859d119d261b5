// Heads of 64, 128 or 256 elements, as many to a warp as its lanes hold, eight neighbouring elements each: normed and
// rotated in registers.
#pragma once

#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {

// Over the lanes of a head, as sum_row does it over a warp whose other lanes have zeros.
template <int kLanes>
__device__ __forceinline__ float sum_squares(const Run& run) {
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) sum = fmaf(run[j], run[j], sum);
#pragma unroll
  for (int other = kLanes / 2; other > 0; other /= 2) sum += __shfl_xor_sync(kAllLanes, sum, other);
  return sum;
}

// As norm_scale and norm_run, by whole warps. A factor of 1 changes nothing, nor does the division by a power of two.
template <int kLanes>
__device__ __forceinline__ void norm_head(const Run& weight, float eps, Run& run) {
  float factor = 1;
  float sum = sum_squares<kLanes>(run);
  if (__any_sync(kAllLanes, !(sum < INFINITY))) {
    if (!(sum < INFINITY)) factor = 0x1p-80F;
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) run[j] *= factor;
    sum = sum_squares<kLanes>(run);
  }
  const float root = sqrtf(sum * (1.0F / (kLanes * kRunLength)) + eps * factor * factor);
  const float inverse = 1.0F / root;
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) run[j] = run[j] * inverse * weight[j];
}

// What a lane's elements and the others of their pairs are multiplied with: the first of a pair has minus the sine.
struct LaneTurns {
  Run cosine;
  Run sine;

  template <bool kNeox>
  __device__ __forceinline__ void load(const float2* turns, int first, int half) {
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) {
      const int i = first + j;
      const float2 turn = turns[!kNeox ? i / 2 : i < half ? i : i - half];
      const bool is_first = kNeox ? i < half : j % 2 == 0;
      cosine[j] = turn.x;
      sine[j] = is_first ? -turn.y : turn.y;
    }
  }
};

// By whole warps. Lanes that are not in it keep what they have.
template <bool kNeox>
__device__ __forceinline__ void rotate_head(const LaneTurns& by, int half, bool is_in, Run& run) {
  Run other;
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    other[j] = kNeox ? __shfl_xor_sync(kAllLanes, run[j], half / kRunLength) : run[j ^ 1];
  }
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    if (is_in) run[j] = run[j] * by.cosine[j] + other[j] * by.sine[j];
  }
}

}  // namespace conclave::cuda
