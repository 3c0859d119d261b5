#include "backends/cuda/add_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {
namespace {

template <bool kVector>
__global__ void __launch_bounds__(kRunThreads) add_kernel(const __grid_constant__ AddArgs args) {
  begin();
  const std::int64_t d = args.a.dims[1];
  const std::int64_t runs = (d + kRunLength - 1) / kRunLength;
  const std::int64_t n_runs = live_rows(args.live, args.a.dims[0]) * runs;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < n_runs; at += stride) {
    const auto [row, run] = divide(at, runs);
    const std::int64_t i = run * kRunLength;
    Run a;
    Run b;
    load_run<kVector>(args.a.type, row_of(args.a, row), i, d, a);
    load_run<kVector>(args.b.type, args.b.rank == 1 ? args.b.data : row_of(args.b, row), i, d, b);
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) a[j] += b[j];
    store_run<kVector>(args.out.type, row_of(args.out, row), i, d, a);
  }
}

}  // namespace

int launch_add(const AddArgs& args, const Stream& stream) {
  const LaunchPlan plan = run_plan(args.a.dims[0], args.a.dims[1]);
  const bool vector = takes_vectors(args.a) && takes_vectors(args.b) && takes_vectors(args.out);
  return vector ? launch(add_kernel<true>, plan, stream, args) : launch(add_kernel<false>, plan, stream, args);
}

}  // namespace conclave::cuda
