#include "backends/cuda/launch.cuh"
#include "backends/cuda/rms_norm_plan.h"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {
namespace {

// kPasses: runs that a thread keeps of a row; 0: any number, read a second time for the result.
// kBank: also leaves the rows as int8.
template <int kPasses, bool kWarpRow, bool kVector, bool kBank>
__global__ void __launch_bounds__(kMaxRowThreads) rms_norm_kernel(const __grid_constant__ RmsNormArgs args) {
  begin();
  __shared__ RowShared shared;
  const bool in_heads = args.x.rank == 3;
  const std::int64_t heads = in_heads ? args.x.dims[1] : 1;
  const std::int64_t d = in_heads ? args.x.dims[2] : args.x.dims[1];
  const std::int64_t n_rows = live_rows(args.live, args.x.dims[0]) * heads;
  const unsigned rows_per_block = kWarpRow ? kWarpRowsPerBlock : 1;
  const unsigned threads = kWarpRow ? kWarp : blockDim.x;
  const std::int64_t first = kRunLength * (kWarpRow ? threadIdx.x % kWarp : threadIdx.x);
  const std::int64_t step = kRunLength * threads;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * rows_per_block + (kWarpRow ? threadIdx.x / kWarp : 0);
  const std::int64_t stride = std::int64_t{gridDim.x} * rows_per_block;

  for (std::int64_t r = first_row; r < n_rows; r += stride) {
    const Divided at = divide(r, heads);
    const std::byte* x = row_of(args.x, at.quotient, at.rest);
    std::byte* out = row_of(args.out, at.quotient, at.rest);
    if constexpr (kPasses > 0) {
      Run kept[kPasses];
      Run weight[kPasses];
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        clear_run(kept[p]);
        clear_run(weight[p]);
        if (i < d) {
          load_run<kVector>(args.x.type, x, i, d, kept[p]);
          load_run<kVector>(args.weight.type, args.weight.data, i, d, weight[p]);
          if (args.add.data != nullptr) {
            Run add;
            load_run<kVector>(args.add.type, row_of(args.add, at.quotient), i, d, add);
#pragma unroll
            for (int j = 0; j < kRunLength; ++j) kept[p][j] = as_stored(args.x.type, kept[p][j] + add[j]);
            store_run<kVector>(args.x.type, row_of(args.x, at.quotient, at.rest), i, d, kept[p]);
          }
        }
      }
      const NormScale scale = norm_scale(d, args.eps, [&](float factor) {
        float sum = 0;
#pragma unroll
        for (int p = 0; p < kPasses; ++p) add_squares(kept[p], factor, sum);
        return sum_row<kWarpRow>(sum, shared);
      });
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        norm_run(kept[p], weight[p], scale, kept[p]);
        if (i < d) store_run<kVector>(args.out.type, out, i, d, kept[p]);
        if (kBank && i < d) put_in_bank(args.bank, r, i, d, kept[p]);
      }
    } else {
      const NormScale scale = norm_scale(d, args.eps, [&](float factor) {
        float sum = 0;
        for (std::int64_t i = first; i < d; i += step) {
          Run run;
          load_run<kVector>(args.x.type, x, i, d, run);
          add_squares(run, factor, sum);
        }
        return sum_row<kWarpRow>(sum, shared);
      });
      for (std::int64_t i = first; i < d; i += step) {
        Run run;
        Run weight;
        load_run<kVector>(args.x.type, x, i, d, run);
        load_run<kVector>(args.weight.type, args.weight.data, i, d, weight);
        norm_run(run, weight, scale, run);
        store_run<kVector>(args.out.type, out, i, d, run);
      }
    }
  }
}

template <bool kVector>
cudaError_t launch_with(const RmsNormArgs& args, const Stream& stream) {
  const std::int64_t d = args.x.dims[args.x.rank - 1];
  const std::int64_t heads = args.x.rank == 3 ? args.x.dims[1] : 1;
  const LaunchPlan plan = rms_norm_plan(args.x.dims[0] * heads, d);
  const bool bank = kVector && args.bank.q != nullptr;
  if (is_warp_row(d)) {
    return bank ? launch(rms_norm_kernel<1, true, kVector, kVector>, plan, stream, args)
                : launch(rms_norm_kernel<1, true, kVector, false>, plan, stream, args);
  }
  if (row_passes(d) == 1) {
    return bank ? launch(rms_norm_kernel<1, false, kVector, kVector>, plan, stream, args)
                : launch(rms_norm_kernel<1, false, kVector, false>, plan, stream, args);
  }
  if (row_passes(d) == kKeptPasses) {
    return bank ? launch(rms_norm_kernel<kKeptPasses, false, kVector, kVector>, plan, stream, args)
                : launch(rms_norm_kernel<kKeptPasses, false, kVector, false>, plan, stream, args);
  }
  return launch(rms_norm_kernel<0, false, kVector, false>, plan, stream, args);
}

}  // namespace

int launch_rms_norm(const RmsNormArgs& args, const Stream& stream) {
  const bool vector =
      takes_vectors(args.x) && takes_vectors(args.add) && takes_vectors(args.weight) && takes_vectors(args.out);
  return vector ? launch_with<true>(args, stream) : launch_with<false>(args, stream);
}

}  // namespace conclave::cuda
