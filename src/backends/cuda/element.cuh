// Elements of activations and caches inside kernels: any float type as f32, rounded to nearest even on the way back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backends/cuda/view.h"

namespace conclave::cuda {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ __forceinline__ float load_float(DType type, const std::byte* row, std::int64_t i) {
  if (type == DType::f32) return reinterpret_cast<const float*>(row)[i];
  const auto bits = reinterpret_cast<const std::uint16_t*>(row)[i];
  if (type == DType::f16) return __half2float(__ushort_as_half(bits));
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}

__device__ __forceinline__ void store_float(DType type, std::byte* row, std::int64_t i, float value) {
  if (type == DType::f32) {
    reinterpret_cast<float*>(row)[i] = value;
  } else if (type == DType::f16) {
    reinterpret_cast<std::uint16_t*>(row)[i] = __half_as_ushort(__float2half_rn(value));
  } else {
    reinterpret_cast<std::uint16_t*>(row)[i] = __bfloat16_as_ushort(__float2bfloat16_rn(value));
  }
}

// Four floats as elements of a row, from one whose address their size divides.
__device__ __forceinline__ void store_4(DType type, std::byte* to, const float (&y)[4]) {
  if (type == DType::f32) {
    *reinterpret_cast<float4*>(to) = {y[0], y[1], y[2], y[3]};
    return;
  }
  std::uint16_t bits[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    bits[i] =
        type == DType::f16 ? __half_as_ushort(__float2half_rn(y[i])) : __bfloat16_as_ushort(__float2bfloat16_rn(y[i]));
  }
  *reinterpret_cast<ushort4*>(to) = {bits[0], bits[1], bits[2], bits[3]};
}

// Row i of a tensor of rank 2; row (i, j) of one of rank 3; and so on.
__device__ __forceinline__ std::byte* row_of(const View& v, std::int64_t i) {
  return v.data + i * v.strides[0];
}
__device__ __forceinline__ std::byte* row_of(const View& v, std::int64_t i, std::int64_t j) {
  return v.data + i * v.strides[0] + j * v.strides[1];
}
__device__ __forceinline__ std::byte* row_of(const View& v, std::int64_t i, std::int64_t j, std::int64_t k) {
  return v.data + i * v.strides[0] + j * v.strides[1] + k * v.strides[2];
}

__device__ __forceinline__ std::int32_t& int_at(const View& v, std::int64_t i) {
  return *reinterpret_cast<std::int32_t*>(v.data + i * v.strides[0]);
}
__device__ __forceinline__ std::int32_t& int_at(const View& v, std::int64_t i, std::int64_t j) {
  return *reinterpret_cast<std::int32_t*>(v.data + i * v.strides[0] + j * v.strides[1]);
}
__device__ __forceinline__ float& float_at(const View& v, std::int64_t i, std::int64_t j) {
  return *reinterpret_cast<float*>(v.data + i * v.strides[0] + j * v.strides[1]);
}

// Rows that count: a count on the device, where there is one, held to [0, rows].
__device__ __forceinline__ std::int64_t live_rows(const std::int32_t* live, std::int64_t rows) {
  if (live == nullptr) return rows;
  const std::int64_t count = __ldcg(live);
  return count < 0 ? 0 : (count > rows ? rows : count);
}

// The same for a kernel that reads rows first and then asks which of them count: nothing waits for the number before
// that.
__device__ __forceinline__ std::int32_t live_count(const std::int32_t* live) {
  return live == nullptr ? 0x7FFFFFFF : __ldcg(live);
}
__device__ __forceinline__ bool is_live(std::int32_t count, std::int64_t row) {
  return row >> 31 == 0 && static_cast<std::int32_t>(row) < count;
}

}  // namespace conclave::cuda
