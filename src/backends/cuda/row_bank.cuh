// RowBank inside kernels.
#pragma once

#include "backends/cuda/product_plan.h"
#include "backends/cuda/quantize.cuh"

namespace conclave::cuda {

// Chunk i of all rows' as int8, by a warp: eight values a lane.
__device__ __forceinline__ void fill_chunk(const RowBank& bank, std::int64_t i) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t row = i / bank.chunks;
  const std::byte* x =
      bank.x.rank == 3 ? row_of(bank.x, row / bank.x.dims[1], row % bank.x.dims[1]) : row_of(bank.x, row);
  float v[8];
  load_chunk(bank.x.type, x, i % bank.chunks, bank.k, lane, v);
  const QuantizedLane q = quantize_lane(v);
  *reinterpret_cast<int2*>(bank.q + i * kChunk + 8 * lane) = make_int2(q.low, q.high);
  if (lane == 0) bank.scale[i] = q.scale;
  const int sum = sum_of_two(q);
  if (lane % 2 == 0) bank.sums[i * 16 + lane / 2] = __half_as_ushort(__int2half_rn(sum));
}

}  // namespace conclave::cuda
