// Rows of f32 of a few tokens, normed in registers as rms_norm does it: a thread has eight neighbouring elements.
#pragma once

#include "backends/cuda/cluster.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {

// Not from the nearest cache: some are read before the kernel waits (launch.cuh).
__device__ __forceinline__ void load_floats(const std::byte* row, int i, Run& out) {
  const auto* from = reinterpret_cast<const float4*>(row) + i / 4;
  const float4 a = __ldcg(from);
  const float4 b = __ldcg(from + 1);
  out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
  out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
}

// The sums of all warps of a row, one set for each time that they are taken.
struct RowSums {
  float of_warp[2][kMaxRowThreads / kWarp];
};

// Over a row that `parts` blocks of a cluster share: as sum_row does it in one block.
__device__ __forceinline__ float sum_parts(float value, int parts, int rank, float* of_warp) {
  const auto warps = static_cast<int>(blockDim.x / kWarp);
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  value = fold_warp(value, [](float a, float b) { return a + b; });
  float* const own = of_warp + rank * warps + threadIdx.x / kWarp;
  if (parts == 1) {
    if (lane == 0) *own = value;
    __syncthreads();
  } else {
    if (lane < parts) store_in_cluster(address_in_block(own, lane), value);
    __syncwarp();
    arrive_at_cluster();
    await_cluster();
  }
  float sum = of_warp[0];
  for (int warp = 1; warp < parts * warps; ++warp) sum += of_warp[warp];
  return sum;
}

// The thread's elements of row r, normed, to `out` and, where one is given, to the bank.
__device__ __forceinline__ void norm_few(Run& row, const Run& weight, float eps, int parts, int rank, RowSums& sums,
                                         std::byte* out, const BankOut& bank, int r, int i, int d) {
  int times = 0;
  const NormScale scale = norm_scale(d, eps, [&](float factor) {
    float squares = 0;
    add_squares(row, factor, squares);
    return sum_parts(squares, parts, rank, sums.of_warp[times++]);
  });
  norm_run(row, weight, scale, row);
  store_run<true>(DType::f32, out, i, d, row);
  if (bank.given()) put_in_bank(bank, r, i, d, row);
}

}  // namespace conclave::cuda
