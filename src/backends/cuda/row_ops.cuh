// Pieces of the kernels that go over rows of activations: runs of eight elements, sums over a row in one fixed order,
// the scale of an RMSNorm.
#pragma once

#include <cmath>

#include "backends/cuda/activation.cuh"
#include "backends/cuda/element.cuh"
#include "backends/cuda/prefill_bank.cuh"
#include "backends/cuda/quantize.cuh"
#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

using Run = float[kRunLength];

// A run as it lies in memory: of 16-bit elements the first four words alone. Loads of several runs are in flight at
// once where they are taken as words and made floats later.
struct RunWords {
  unsigned word[kRunLength];
};

template <bool kVector>
__device__ __forceinline__ RunWords load_words(DType type, const std::byte* row, std::int64_t i, std::int64_t d) {
  RunWords out;
  if constexpr (kVector) {
    const auto* from = reinterpret_cast<const uint4*>(row + i * (type == DType::f32 ? 4 : 2));
    const uint4 a = from[0];
    const uint4 b = type == DType::f32 ? from[1] : uint4{};
    out = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
  } else {
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) out.word[j] = 0;
    if (type == DType::f32) {
#pragma unroll
      for (int j = 0; j < kRunLength; ++j) {
        if (i + j < d) out.word[j] = reinterpret_cast<const unsigned*>(row)[i + j];
      }
    } else {
#pragma unroll
      for (int j = 0; j < kRunLength; ++j) {
        if (i + j < d)
          out.word[j / 2] |= unsigned{reinterpret_cast<const std::uint16_t*>(row)[i + j]} << (16 * (j % 2));
      }
    }
  }
  return out;
}

__device__ __forceinline__ void as_floats(DType type, const RunWords& words, Run& out) {
  if (type == DType::f32) {
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) out[j] = __uint_as_float(words.word[j]);
  } else if (type == DType::f16) {
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) {
      out[j] = __half2float(__ushort_as_half(static_cast<std::uint16_t>(words.word[j / 2] >> (16 * (j % 2)))));
    }
  } else {
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) {
      const unsigned word = words.word[j / 2];
      out[j] = __uint_as_float(j % 2 == 0 ? word << 16 : word & 0xFFFF0000U);
    }
  }
}

// Elements i .. i+7 of a row; those past its end, which vectors do not have, are 0.
template <bool kVector>
__device__ __forceinline__ void load_run(DType type, const std::byte* row, std::int64_t i, std::int64_t d, Run& out) {
  as_floats(type, load_words<kVector>(type, row, i, d), out);
}

__device__ __forceinline__ void clear_run(Run& run) {
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) run[j] = 0;
}

// A thread's runs of a row: at `first`, and every `step` from there; zeros past its end.
template <int kPasses, bool kVector>
__device__ __forceinline__ void load_runs(DType type, const std::byte* row, std::int64_t first, std::int64_t step,
                                          std::int64_t d, RunWords (&out)[kPasses]) {
#pragma unroll
  for (int p = 0; p < kPasses; ++p) {
    out[p] = {};
    if (first + p * step < d) out[p] = load_words<kVector>(type, row, first + p * step, d);
  }
}

template <bool kVector>
__device__ __forceinline__ void store_run(DType type, std::byte* row, std::int64_t i, std::int64_t d, const Run& run) {
  if constexpr (!kVector) {
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) {
      if (i + j < d) store_float(type, row, i + j, run[j]);
    }
  } else if (type == DType::f32) {
    auto* to = reinterpret_cast<float4*>(row + i * 4);
    to[0] = {run[0], run[1], run[2], run[3]};
    to[1] = {run[4], run[5], run[6], run[7]};
  } else {
    unsigned word[kRunLength / 2];
#pragma unroll
    for (int j = 0; j < kRunLength / 2; ++j) {
      const float low = run[2 * j];
      const float high = run[2 * j + 1];
      if (type == DType::f16) {
        word[j] = __half_as_ushort(__float2half_rn(low)) | unsigned{__half_as_ushort(__float2half_rn(high))} << 16;
      } else {
        word[j] = __bfloat16_as_ushort(__float2bfloat16_rn(low)) |
                  unsigned{__bfloat16_as_ushort(__float2bfloat16_rn(high))} << 16;
      }
    }
    *reinterpret_cast<uint4*>(row + i * 2) = {word[0], word[1], word[2], word[3]};
  }
}

// What a load will give after a store.
__device__ __forceinline__ float as_stored(DType type, float value) {
  if (type == DType::f16) return __half2float(__float2half_rn(value));
  if (type == DType::bf16) return __bfloat162float(__float2bfloat16_rn(value));
  return value;
}

// Over a warp in halves: all lanes have the same bits. `fold` commutes.
template <class Fold>
__device__ __forceinline__ float fold_warp(float value, Fold fold) {
#pragma unroll
  for (int other = kWarp / 2; other > 0; other /= 2) value = fold(value, __shfl_xor_sync(0xFFFFFFFFU, value, other));
  return value;
}

// Over the threads of a row, which are a block or (kWarpRow) a warp: warps ascending. All threads have the result.
struct RowShared {
  float of_warp[kMaxRowThreads / kWarp];
};
template <bool kWarpRow, class Fold>
__device__ __forceinline__ float fold_row(float value, RowShared& shared, Fold fold) {
  value = fold_warp(value, fold);
  if constexpr (kWarpRow) return value;
  __syncthreads();  // the last fold's readers are done
  if (threadIdx.x % kWarp == 0) shared.of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  float out = shared.of_warp[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) out = fold(out, shared.of_warp[warp]);
  return out;
}
template <bool kWarpRow>
__device__ __forceinline__ float sum_row(float value, RowShared& shared) {
  return fold_row<kWarpRow>(value, shared, [](float a, float b) { return a + b; });
}

__device__ __forceinline__ void add_squares(const Run& run, float factor, float& sum) {
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    const float x = run[j] * factor;
    sum = fmaf(x, x, sum);
  }
}

// A normed element is (x * factor) * inverse * weight. `squares(factor)` is the row's sum of (x * factor)^2, the same
// in all its threads: where it is too large for f32, or an element is infinite or NaN, it is taken again, scaled down.
struct NormScale {
  float factor;
  float inverse;
};
template <class Squares>
__device__ __forceinline__ NormScale norm_scale(std::int64_t d, float eps, Squares squares) {
  float factor = 1;
  float sum;
#pragma unroll 1
  for (;;) {  // so that its code is there once
    sum = squares(factor);
    if (sum < INFINITY || factor != 1) break;
    factor = 0x1p-80F;
  }
  const float root = sqrtf(sum / static_cast<float>(d) + eps * factor * factor);
  return {factor, 1.0F / root};
}
__device__ __forceinline__ void norm_run(const Run& x, const Run& weight, NormScale scale, Run& out) {
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) out[j] = x[j] * scale.factor * scale.inverse * weight[j];
}

// Elements i .. i+7 of row r to the bank.
__device__ __forceinline__ void put_in_bf16_bank(const BankOut& bank, std::int64_t r, std::int64_t i, const Run& run) {
  const float first[4] = {run[0], run[1], run[2], run[3]};
  const float second[4] = {run[4], run[5], run[6], run[7]};
  put_bank_4(bank.bf16 + r * bank.bf16_stride, i, first);
  put_bank_4(bank.bf16 + r * bank.bf16_stride, i + 4, second);
}
// The same, of whichever kind it is. A warp has a whole chunk.
__device__ __forceinline__ void put_in_bank(const BankOut& bank, std::int64_t r, std::int64_t i, std::int64_t d,
                                            const Run& run) {
  if (bank.bf16 != nullptr) {
    put_in_bf16_bank(bank, r, i, run);
    return;
  }
  const QuantizedLane q = quantize_lane(run);
  const int sum = sum_of_two(q);
  *reinterpret_cast<int2*>(bank.q + r * d + i) = make_int2(q.low, q.high);
  if (threadIdx.x % kWarp == 0) bank.scale[(r * d + i) / 256] = q.scale;
  if (threadIdx.x % 2 == 0) bank.sums[(r * d + i) / 16] = __half_as_ushort(__int2half_rn(sum));
}

// Quotient and remainder of numbers that are not negative: long division is slow, and mostly not needed.
struct Divided {
  std::int64_t quotient;
  std::int64_t rest;
};
__device__ __forceinline__ Divided divide(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) {
    const auto small = static_cast<unsigned>(a);
    const auto by = static_cast<unsigned>(b);
    return {small / by, small % by};
  }
  return {a / b, a % b};
}

}  // namespace conclave::cuda
