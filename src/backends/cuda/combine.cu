#include "backends/cuda/combine_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {
namespace {

// Elements i .. i+7 of the token's sum: slots ascending, sum = fma(weight, row, sum) from 0; then + shared.
template <bool kVector>
__device__ __forceinline__ void combine_run(const CombineArgs& args, std::int64_t token, std::int64_t i, std::int64_t d,
                                            Run& sum) {
  constexpr int kSlotsAtOnce = kVector ? 8 : 2;  // whose rows are on their way together
  const std::int64_t top_k = args.weights.dims[1];
  RunWords shared{};
  if (args.shared.data != nullptr) shared = load_words<kVector>(args.shared.type, row_of(args.shared, token), i, d);
  clear_run(sum);
  for (std::int64_t from = 0; from < top_k; from += kSlotsAtOnce) {
    const std::byte* row[kSlotsAtOnce];
    float weight[kSlotsAtOnce];
#pragma unroll
    for (int j = 0; j < kSlotsAtOnce; ++j) {
      const std::int64_t slot = from + j;
      row[j] = nullptr;
      weight[j] = 0;
      if (slot < top_k) {
        const std::int64_t index = int_at(args.index, token, slot);
        weight[j] = float_at(args.weights, token, slot);
        if (index >= 0 && index < args.index_end) {
          row[j] = args.rows.rank == 2 ? row_of(args.rows, index) : row_of(args.rows, token, slot);
        }
      }
    }
    RunWords words[kSlotsAtOnce];
#pragma unroll
    for (int j = 0; j < kSlotsAtOnce; ++j) {
      if (row[j] != nullptr) words[j] = load_words<kVector>(args.rows.type, row[j], i, d);
    }
#pragma unroll
    for (int j = 0; j < kSlotsAtOnce; ++j) {
      if (row[j] == nullptr) continue;
      Run x;
      as_floats(args.rows.type, words[j], x);
#pragma unroll
      for (int e = 0; e < kRunLength; ++e) sum[e] = fmaf(weight[j], x[e], sum[e]);
    }
  }
  if (args.shared.data == nullptr) return;
  Run x;
  as_floats(args.shared.type, shared, x);
#pragma unroll
  for (int e = 0; e < kRunLength; ++e) sum[e] += x[e];
}

// Elements i .. i+7 of the token's new residual, as stored; 0 past its end.
template <bool kVector>
__device__ __forceinline__ void residual_run(const CombineArgs& args, std::int64_t token, std::int64_t i,
                                             std::int64_t d, Run& out) {
  std::byte* residual = row_of(args.out, token);
  const RunWords before = load_words<kVector>(args.out.type, residual, i, d);
  Run sum;
  combine_run<kVector>(args, token, i, d, sum);
  as_floats(args.out.type, before, out);
#pragma unroll
  for (int e = 0; e < kRunLength; ++e) {
    // Past the end, which vectors do not reach, there is nothing for a sum over the row: not even 0 * infinity.
    out[e] = kVector || i + e < d ? as_stored(args.out.type, out[e] + sum[e]) : 0.0F;
  }
  store_run<kVector>(args.out.type, residual, i, d, out);
}

template <bool kVector>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(const __grid_constant__ CombineArgs args) {
  begin();
  const std::int64_t d = args.out.dims[1];
  const std::int64_t parts = (d + kCombineColumns - 1) / kCombineColumns;
  const std::int64_t n_parts = live_rows(args.live, args.out.dims[0]) * parts;
  for (std::int64_t part = blockIdx.x; part < n_parts; part += gridDim.x) {
    const Divided at = divide(part, parts);
    const std::int64_t i = at.rest * kCombineColumns + kRunLength * threadIdx.x;
    if (i >= d) continue;
    Run run;
    if (args.into == CombineInto::out) {
      combine_run<kVector>(args, at.quotient, i, d, run);
      store_run<kVector>(args.out.type, row_of(args.out, at.quotient), i, d, run);
    } else {
      residual_run<kVector>(args, at.quotient, i, d, run);
    }
  }
}

// kPasses: runs that a thread keeps of the residual; 0: any number, read a second time.
// kBank: also leaves the rows as int8.
template <int kPasses, bool kVector, bool kBank>
__global__ void __launch_bounds__(kMaxRowThreads) combine_norm_kernel(const __grid_constant__ CombineArgs args) {
  begin();
  __shared__ RowShared shared;
  const std::int64_t d = args.out.dims[1];
  const std::int64_t n_tokens = live_rows(args.live, args.out.dims[0]);
  const std::int64_t first = kRunLength * threadIdx.x;
  const std::int64_t step = kRunLength * blockDim.x;
  for (std::int64_t token = blockIdx.x; token < n_tokens; token += gridDim.x) {
    std::byte* normed = row_of(args.normed, token);
    if constexpr (kPasses > 0) {
      Run kept[kPasses];
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        clear_run(kept[p]);
        if (i < d) residual_run<kVector>(args, token, i, d, kept[p]);
      }
      Run weight[kPasses];
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        clear_run(weight[p]);
        if (i < d) load_run<kVector>(args.norm_weight.type, args.norm_weight.data, i, d, weight[p]);
      }
      const NormScale scale = norm_scale(d, args.eps, [&](float factor) {
        float sum = 0;
#pragma unroll
        for (int p = 0; p < kPasses; ++p) add_squares(kept[p], factor, sum);
        return sum_row<false>(sum, shared);
      });
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        norm_run(kept[p], weight[p], scale, kept[p]);
        if (i < d) store_run<kVector>(args.normed.type, normed, i, d, kept[p]);
        if (kBank && i < d) put_in_bank(args.bank, token, i, d, kept[p]);
      }
    } else {
      for (std::int64_t i = first; i < d; i += step) {
        Run run;
        residual_run<kVector>(args, token, i, d, run);
      }
      // Each thread reads the elements that it wrote itself.
      const std::byte* residual = row_of(args.out, token);
      const NormScale scale = norm_scale(d, args.eps, [&](float factor) {
        float sum = 0;
        for (std::int64_t i = first; i < d; i += step) {
          Run run;
          load_run<kVector>(args.out.type, residual, i, d, run);
          add_squares(run, factor, sum);
        }
        return sum_row<false>(sum, shared);
      });
      for (std::int64_t i = first; i < d; i += step) {
        Run run;
        Run weight;
        load_run<kVector>(args.out.type, residual, i, d, run);
        load_run<kVector>(args.norm_weight.type, args.norm_weight.data, i, d, weight);
        norm_run(run, weight, scale, run);
        store_run<kVector>(args.normed.type, normed, i, d, run);
      }
    }
  }
}

template <bool kVector>
cudaError_t launch_with(const CombineArgs& args, const Stream& stream) {
  const std::int64_t d = args.out.dims[1];
  const LaunchPlan plan = combine_plan(args.into, args.out.dims[0], d);
  if (args.into != CombineInto::residual_norm) return launch(combine_kernel<kVector>, plan, stream, args);
  const bool bank = kVector && args.bank.q != nullptr;
  if (row_passes(d) == 1) {
    return bank ? launch(combine_norm_kernel<1, kVector, kVector>, plan, stream, args)
                : launch(combine_norm_kernel<1, kVector, false>, plan, stream, args);
  }
  if (row_passes(d) == kKeptPasses) {
    return bank ? launch(combine_norm_kernel<kKeptPasses, kVector, kVector>, plan, stream, args)
                : launch(combine_norm_kernel<kKeptPasses, kVector, false>, plan, stream, args);
  }
  return launch(combine_norm_kernel<0, kVector, false>, plan, stream, args);
}

}  // namespace

int launch_combine(const CombineArgs& args, const Stream& stream) {
  const bool vector = takes_vectors(args.rows) && takes_vectors(args.shared) && takes_vectors(args.out) &&
                      takes_vectors(args.norm_weight) && takes_vectors(args.normed);
  return vector ? launch_with<true>(args, stream) : launch_with<false>(args, stream);
}

}  // namespace conclave::cuda
