#include "backends/cuda/normed_router_plan.h"

#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/float_chains.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {
namespace {

// Before sm_90 it has no body: nothing launches it there.
template <int kRows>
__global__ void __launch_bounds__(kMaxRowThreads) normed_router(const __grid_constant__ NormedRouterArgs args) {
#if __CUDA_ARCH__ < 900
  begin();
#else
  extern __shared__ __align__(128) float router_shared[];
  __shared__ std::uint64_t columns_there;
  __shared__ RowShared sums;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const auto warps = static_cast<int>(blockDim.x / kWarp);
  const int k = args.k;
  // Neighbouring blocks share rows.
  const int column_parts = (args.n + kRouterColumns - 1) / kRouterColumns;
  const int row_part = static_cast<int>(blockIdx.x) / column_parts;
  const int column_part = static_cast<int>(blockIdx.x) - row_part * column_parts;
  const int first_column = column_part * kRouterColumns;
  const int first_row = row_part * kRows;
  float* const rows = router_shared;
  float* const columns = router_shared + kRows * k;

  // Past the last column, and the last row, it is the last again: computed and not used.
  if (warp == 0) {
    if (lane == 0) {
      barrier_init(&columns_there, 1);
      end_barrier_init();
      expect_bytes(&columns_there, kRouterColumns * k * 4);
    }
    __syncwarp();
    if (lane < kRouterColumns) {
      copy_bulk(columns + lane * k, args.w + min(first_column + lane, args.n - 1) * args.w_column, k * 4,
                &columns_there);
    }
  }
  const int first = kRunLength * static_cast<int>(threadIdx.x);
  Run weight;
  load_run<true>(DType::f32, reinterpret_cast<const std::byte*>(args.norm_weight), first, k, weight);
  begin();
  const std::int32_t live = min(live_count(args.live), args.rows);
  Run x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float* row = args.x + min(first_row + r, args.rows - 1) * args.x_stride;
    load_run<true>(DType::f32, reinterpret_cast<const std::byte*>(row), first, k, x[r]);
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const NormScale scale = norm_scale(k, args.eps, [&](float factor) {
      float sum = 0;
      add_squares(x[r], factor, sum);
      return sum_row<false>(sum, sums);
    });
    norm_run(x[r], weight, scale, x[r]);
    store_run<true>(DType::f32, reinterpret_cast<std::byte*>(rows + r * k), first, k, x[r]);
    // Of the blocks that share rows, each writes another of them.
    const int row = first_row + r;
    if (r % column_parts != column_part || row >= live) continue;
    store_run<true>(DType::f32, reinterpret_cast<std::byte*>(args.normed + row * args.normed_stride), first, k, x[r]);
    if (args.bank.given()) put_in_bank(args.bank, row, first, k, x[r]);
  }
  __syncthreads();
  barrier_wait(&columns_there, 0);

  // A warp has a column at a time, a lane one of its chains with each row.
#pragma unroll 1
  for (int i = warp; i < kRouterColumns; i += warps) {
    const int column = first_column + i;
    const float* w = columns + i * k + lane;
    float chains[kRows] = {};
#pragma unroll 8
    for (int at = 0; at < k; at += kWarp) {
      const float by = w[at];
#pragma unroll
      for (int r = 0; r < kRows; ++r) chains[r] = fmaf(rows[r * k + at + lane], by, chains[r]);
    }
    fold_many<kRows>(chains, lane);
    store_folded<kRows, 1>(chains, [&](int r, int /*c*/, float y) {
      if (first_row + r >= live || column >= args.n) return;
      if (args.bias != nullptr) y += args.bias[column];
      args.out[(first_row + r) * args.out_stride + column] = y;
    });
  }
#endif
}

}  // namespace

int launch_normed_router(const NormedRouterArgs& args, const Stream& stream) {
  const LaunchPlan plan = normed_router_plan(args.rows, args.n, args.k, args.multiprocessors);
  return router_rows(args.rows, args.n, args.multiprocessors) == 1
             ? launch(normed_router<1>, plan, stream, args)
             : launch(normed_router<kRouterMostRows>, plan, stream, args);
}

}  // namespace conclave::cuda
