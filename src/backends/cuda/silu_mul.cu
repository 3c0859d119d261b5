#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_ops.cuh"
#include "backends/cuda/silu_mul_plan.h"

namespace conclave::cuda {
namespace {

template <bool kVector>
__global__ void __launch_bounds__(kRunThreads)
    silu_mul_kernel(const __grid_constant__ SiluMulArgs args, std::int64_t rows) {
  begin();
  const int last = args.out.rank - 1;
  const std::int64_t d = args.out.dims[last];
  const std::int64_t runs = (d + kRunLength - 1) / kRunLength;
  const std::int64_t n_runs = live_rows(args.live, rows) * runs;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; at < n_runs; at += stride) {
    auto [row, run] = divide(at, runs);
    const std::int64_t i = run * kRunLength;
    const std::byte* gate_row = args.gate.data;
    const std::byte* up_row = args.up.data;
    std::byte* out_row = args.out.data;
    for (int dim = last - 1; dim >= 0; --dim) {
      const Divided index = dim == 0 ? Divided{0, row} : divide(row, args.out.dims[dim]);
      gate_row += index.rest * args.gate.strides[dim];
      up_row += index.rest * args.up.strides[dim];
      out_row += index.rest * args.out.strides[dim];
      row = index.quotient;
    }
    Run gate;
    Run up;
    load_run<kVector>(args.gate.type, gate_row, i, d, gate);
    load_run<kVector>(args.up.type, up_row, i, d, up);
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) gate[j] = gated(Activation::silu, gate[j], up[j]);
    store_run<kVector>(args.out.type, out_row, i, d, gate);
  }
}

}  // namespace

int launch_silu_mul(const SiluMulArgs& args, const Stream& stream) {
  const std::int64_t rows = outer_rows(args.out);
  const LaunchPlan plan = run_plan(rows, args.out.dims[args.out.rank - 1]);
  const bool vector = takes_vectors(args.gate) && takes_vectors(args.up) && takes_vectors(args.out);
  return vector ? launch(silu_mul_kernel<true>, plan, stream, args, rows)
                : launch(silu_mul_kernel<false>, plan, stream, args, rows);
}

}  // namespace conclave::cuda
