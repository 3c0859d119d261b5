// One weight of a tensor, however its rows are laid out: as stored (decode.cuh) or in planes (weight_planes.h).
#pragma once

#include "backends/cuda/decode.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

// Weight k of a row of `length` that weight_planes.h describes: of q6_k, or of a format in blocks of 32.
__device__ __forceinline__ float decode_planes_q6_k(const std::byte* row, std::int64_t length, std::int64_t k) {
  const PlanesQ6K planes{length / 256};
  const std::int64_t b = k / 256;
  const auto i = static_cast<unsigned>(k % 256);
  const unsigned h = i / 128;
  const unsigned low = byte_at(row + planes.ql(b), 64 * h + i % 64) >> (i % 128 < 64 ? 0 : 4) & 0xFU;
  const unsigned high = byte_at(row + planes.qh(b), 32 * h + i % 32) >> 2 * (i / 32 % 4) & 3U;
  const float scale = half_at(row + planes.d(b), 0) * static_cast<float>(signed_at(row + planes.scales(b), i / 16));
  return scale * static_cast<float>(static_cast<int>(low | high << 4) - 32);
}

__device__ __forceinline__ float decode_planes_32(DType type, const std::byte* row, std::int64_t length,
                                                  std::int64_t k) {
  const Planes32 planes{type, length / 32};
  const std::byte* levels = row + planes.levels(k / 32);
  const std::byte* scale = row + planes.scales(k / 32);
  const auto i = static_cast<unsigned>(k % 32);
  if (type == DType::q8_0) return static_cast<float>(signed_at(levels, i)) * half_at(scale, 0);
  if (type == DType::q4_0) return half_at(scale, 0) * static_cast<float>(static_cast<int>(nibble_at(levels, i)) - 8);
  const unsigned code = byte_at(levels, i % 16 / 4 * 4 + i / 16 * 2 + i % 4 / 2) >> 4 * (i % 2) & 0xFU;
  return mxfp4_half_scale(byte_at(scale, 0)) * mxfp4_doubled(code);
}

// Weight k of the row at `column`.
__device__ __forceinline__ float weight_at(const View& w, const std::byte* column, std::int64_t k) {
  const std::int64_t length = w.dims[w.rank - 1];
  if (!w.planes) return decode_weight(w.type, column, k);
  return w.type == DType::q6_k ? decode_planes_q6_k(column, length, k) : decode_planes_32(w.type, column, length, k);
}

}  // namespace conclave::cuda
