// Rows as 16 bits: a block has a row. Of f16 it looks for the largest number first.
#include "backends/cuda/bf16_pair.cuh"
#include "backends/cuda/element.cuh"
#include "backends/cuda/half_prefill_plan.h"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

constexpr int kHalfBankThreads = 128;
constexpr std::int64_t kMostBankBlocks = 1 << 20;

// Four elements of a row of k from `at` on; zeros past the last.
template <bool vectors>
__device__ __forceinline__ float4 four_of(const View& x, const std::byte* row, std::int64_t at, std::int64_t k) {
  if constexpr (vectors) {
    return at < k ? *reinterpret_cast<const float4*>(row + 4 * at) : float4{};
  } else {
    const auto one = [&](std::int64_t i) { return i < k ? load_float(x.type, row, i) : 0.0F; };
    return {one(at), one(at + 1), one(at + 2), one(at + 3)};
  }
}

// The power of two that a row with this largest magnitude is divided by: a NaN is no magnitude.
__device__ __forceinline__ int exponent_of(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  return min(max(exponent, -113), 127) - 14;
}
__device__ __forceinline__ float power(int exponent) {  // -127 and more
  return exponent < -126 ? __uint_as_float(0x00400000U) : __uint_as_float(static_cast<unsigned>(exponent + 127) << 23);
}

// The block's largest magnitude.
template <bool vectors>
__device__ __forceinline__ float largest_of(const View& x, const std::byte* row, std::int64_t k) {
  __shared__ float of_warp[kHalfBankThreads / kWarp];
  float largest = 0.0F;
  for (std::int64_t at = 4 * threadIdx.x; at < k; at += 4 * kHalfBankThreads) {
    const float4 v = four_of<vectors>(x, row, at, k);
    largest = fmaxf(fmaxf(largest, fmaxf(fabsf(v.x), fabsf(v.y))), fmaxf(fabsf(v.z), fabsf(v.w)));
  }
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
  __syncthreads();  // the row before has been read
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = largest;
  __syncthreads();
#pragma unroll
  for (float other : of_warp) largest = fmaxf(largest, other);
  return largest;
}

__device__ __forceinline__ unsigned f16_pair(float low, float high) {
  unsigned y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

template <DType type, bool vectors>
__global__ void __launch_bounds__(kHalfBankThreads) fill_half_bank(const __grid_constant__ HalfBankArgs args) {
  begin();
  const View& x = args.x;
  const std::int64_t k = x.dims[x.rank - 1];
  const std::int64_t inner = x.rank == 3 ? x.dims[1] : 1;
  const std::int64_t rows = x.dims[0] * inner;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const std::byte* from = x.rank == 3 ? row_of(x, row / inner, row % inner) : row_of(x, row);
    float by = 1.0F;
    if constexpr (type == DType::f16) {
      const int exponent = exponent_of(largest_of<vectors>(x, from, k));
      by = power(-exponent);
      if (threadIdx.x == 0) args.factors[row] = power(exponent);
    }
    for (std::int64_t at = 4 * threadIdx.x; at < args.stride; at += 4 * kHalfBankThreads) {
      const float4 v = four_of<vectors>(x, from, at, k);
      uint2 words;
      if constexpr (type == DType::f16) {
        words = {f16_pair(v.x * by, v.y * by), f16_pair(v.z * by, v.w * by)};
      } else {
        words = {bf16_pair(v.x, v.y), bf16_pair(v.z, v.w)};
      }
      *reinterpret_cast<uint2*>(args.bank + row * args.stride + at) = words;
    }
  }
}

}  // namespace

int launch_fill_half_bank(const HalfBankArgs& args, const Stream& stream) {
  const auto [rows, vectors] = banked_rows(args.x);
  const LaunchPlan plan{.blocks = rows < kMostBankBlocks ? rows : kMostBankBlocks, .threads = kHalfBankThreads};
  const auto kernel = args.type == DType::f16
                          ? (vectors ? fill_half_bank<DType::f16, true> : fill_half_bank<DType::f16, false>)
                          : (vectors ? fill_half_bank<DType::bf16, true> : fill_half_bank<DType::bf16, false>);
  return launch(kernel, plan, stream, args);
}

}  // namespace conclave::cuda
