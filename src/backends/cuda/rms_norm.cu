#include "backends/cuda/launch.cuh"
#include "backends/cuda/norm_few_plan.h"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {
namespace {

// kPasses: runs that a thread keeps of a row; 0: any number, read a second time for the result.
// kBank: also leaves the rows as int8.
template <int kPasses, bool kWarpRow, bool kVector, bool kBank>
__global__ void __launch_bounds__(kMaxRowThreads) rms_norm_kernel(const __grid_constant__ RmsNormArgs args) {
  __shared__ RowShared shared;
  const bool in_heads = args.x.rank == 3;
  const std::int64_t heads = in_heads ? args.x.dims[1] : 1;
  const std::int64_t d = in_heads ? args.x.dims[2] : args.x.dims[1];
  const unsigned rows_per_block = kWarpRow ? kWarpRowsPerBlock : 1;
  const unsigned threads = kWarpRow ? kWarp : blockDim.x;
  const std::int64_t first = kRunLength * (kWarpRow ? threadIdx.x % kWarp : threadIdx.x);
  const std::int64_t step = kRunLength * threads;
  const std::int64_t first_row = std::int64_t{blockIdx.x} * rows_per_block + (kWarpRow ? threadIdx.x / kWarp : 0);
  const std::int64_t stride = std::int64_t{gridDim.x} * rows_per_block;
  [[maybe_unused]] RunWords weight[kPasses > 0 ? kPasses : 1];
  if constexpr (kPasses > 0) load_runs<kPasses, kVector>(args.weight.type, args.weight.data, first, step, d, weight);
  begin();
  const std::int32_t count = live_count(args.live);

  for (std::int64_t r = first_row; r < args.x.dims[0] * heads; r += stride) {
    const Divided at = divide(r, heads);
    std::byte* x = row_of(args.x, at.quotient, at.rest);
    std::byte* out = row_of(args.out, at.quotient, at.rest);
    if constexpr (kPasses > 0) {
      // A row that is not live is read, too: nothing waits for the count, or for another load.
      RunWords words[kPasses];
      RunWords add_words[kPasses];
      load_runs<kPasses, kVector>(args.x.type, x, first, step, d, words);
      if (args.add.data != nullptr) {
        load_runs<kPasses, kVector>(args.add.type, row_of(args.add, at.quotient), first, step, d, add_words);
      }
      if (!is_live(count, at.quotient)) break;
      Run kept[kPasses];
#pragma unroll
      for (int p = 0; p < kPasses; ++p) as_floats(args.x.type, words[p], kept[p]);
      if (args.add.data != nullptr) {
#pragma unroll
        for (int p = 0; p < kPasses; ++p) {
          Run add;
          as_floats(args.add.type, add_words[p], add);
#pragma unroll
          for (int j = 0; j < kRunLength; ++j) kept[p][j] = as_stored(args.x.type, kept[p][j] + add[j]);
          const std::int64_t i = first + p * step;
          if (i < d) store_run<kVector>(args.x.type, x, i, d, kept[p]);
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
        Run by;
        as_floats(args.weight.type, weight[p], by);
        norm_run(kept[p], by, scale, kept[p]);
        if (i < d) store_run<kVector>(args.out.type, out, i, d, kept[p]);
        if (kBank && i < d) put_in_bank(args.bank, r, i, d, kept[p]);
      }
    } else {
      if (!is_live(count, at.quotient)) break;
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
        Run by;
        load_run<kVector>(args.x.type, x, i, d, run);
        load_run<kVector>(args.weight.type, args.weight.data, i, d, by);
        norm_run(run, by, scale, run);
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
  const bool bank = kVector && args.bank.given();
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
  if (vector && takes_norm_few(args)) return launch_norm_few(args, stream);
  return vector ? launch_with<true>(args, stream) : launch_with<false>(args, stream);
}

}  // namespace conclave::cuda
