#include "backends/cuda/combine_few_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {
namespace {

// Experts' rows of bf16 and a residual of f32, as prompts have them: a kernel that knows it keeps half as many words of
// rows on their way, and twice as many blocks of it run at a time.
struct AnyTypes {
  static constexpr bool kKnown = false;
  static __device__ __forceinline__ DType rows(const CombineArgs& args) { return args.rows.type; }
  static __device__ __forceinline__ DType out(const CombineArgs& args) { return args.out.type; }
};
struct PromptTypes {
  static constexpr bool kKnown = true;
  static __device__ __forceinline__ DType rows(const CombineArgs&) { return DType::bf16; }
  static __device__ __forceinline__ DType out(const CombineArgs&) { return DType::f32; }
};

// Elements i .. i+7 of the token's sum: slots ascending, sum = fma(weight, row, sum) from 0; then + shared.
template <bool kVector, class Types = AnyTypes>
__device__ __forceinline__ void combine_run(const CombineArgs& args, std::int64_t token, std::int64_t i, std::int64_t d,
                                            Run& sum) {
  constexpr int kSlotsAtOnce = kVector ? 8 : 2;  // whose rows are on their way together
  const std::int64_t top_k = args.weights.dims[1];
  const auto* indices = reinterpret_cast<const std::int32_t*>(row_of(args.index, token));
  const auto* weights = reinterpret_cast<const float*>(row_of(args.weights, token));
  RunWords shared{};
  const auto load_shared = [&] {
    if (args.shared.data != nullptr) shared = load_words<kVector>(args.shared.type, row_of(args.shared, token), i, d);
  };
  if constexpr (!Types::kKnown) load_shared();
  clear_run(sum);
  for (std::int64_t from = 0; from < top_k; from += kSlotsAtOnce) {
    // All of them are asked for before the first is looked at.
    std::int32_t index[kSlotsAtOnce];
    float weight[kSlotsAtOnce];
#pragma unroll
    for (int j = 0; j < kSlotsAtOnce; ++j) {
      index[j] = from + j < top_k ? indices[from + j] : -1;
      weight[j] = from + j < top_k ? weights[from + j] : 0.0F;
    }
    const std::byte* row[kSlotsAtOnce];
#pragma unroll
    for (int j = 0; j < kSlotsAtOnce; ++j) {
      row[j] = nullptr;
      if (index[j] >= 0 && index[j] < args.index_end) {
        row[j] = args.rows.rank == 2 ? row_of(args.rows, index[j]) : row_of(args.rows, token, from + j);
      }
    }
    RunWords words[kSlotsAtOnce];
#pragma unroll
    for (int j = 0; j < kSlotsAtOnce; ++j) {
      if (row[j] != nullptr) words[j] = load_words<kVector>(Types::rows(args), row[j], i, d);
    }
#pragma unroll
    for (int j = 0; j < kSlotsAtOnce; ++j) {
      if (row[j] == nullptr) continue;
      Run x;
      as_floats(Types::rows(args), words[j], x);
#pragma unroll
      for (int e = 0; e < kRunLength; ++e) sum[e] = fmaf(weight[j], x[e], sum[e]);
    }
  }
  if (args.shared.data == nullptr) return;
  if constexpr (Types::kKnown) load_shared();
  Run x;
  as_floats(args.shared.type, shared, x);
#pragma unroll
  for (int e = 0; e < kRunLength; ++e) sum[e] += x[e];
}

// Elements i .. i+7 of the token's new residual, as stored where it is live; 0 past its end.
template <bool kVector, class Types = AnyTypes>
__device__ __forceinline__ void residual_run(const CombineArgs& args, std::int64_t token, std::int64_t i,
                                             std::int64_t d, bool live, Run& out) {
  std::byte* residual = row_of(args.out, token);
  const RunWords before = load_words<kVector>(Types::out(args), residual, i, d);
  Run sum;
  combine_run<kVector, Types>(args, token, i, d, sum);
  as_floats(Types::out(args), before, out);
#pragma unroll
  for (int e = 0; e < kRunLength; ++e) {
    // Past the end, which vectors do not reach, there is nothing for a sum over the row: not even 0 * infinity.
    out[e] = kVector || i + e < d ? as_stored(Types::out(args), out[e] + sum[e]) : 0.0F;
  }
  if (live) store_run<kVector>(Types::out(args), residual, i, d, out);
}

template <bool kVector>
__global__ void __launch_bounds__(kCombineThreads, 4) combine_kernel(const __grid_constant__ CombineArgs args) {
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
      residual_run<kVector>(args, at.quotient, i, d, true, run);
    }
  }
}

// kPasses: runs that a thread keeps of the residual; 0: any number, read a second time.
// kBank: also leaves the rows as int8.
template <int kPasses, bool kVector, bool kBank, class Types = AnyTypes>
__global__ void __launch_bounds__(kMaxRowThreads, Types::kKnown ? 2 : 0)
    combine_norm_kernel(const __grid_constant__ CombineArgs args) {
  __shared__ RowShared shared;
  const std::int64_t d = args.out.dims[1];
  const std::int64_t first = kRunLength * threadIdx.x;
  const std::int64_t step = kRunLength * blockDim.x;
  constexpr int kRuns = kPasses > 0 ? kPasses : 1;
  RunWords weight[kRuns];
  const auto load_weight = [&] {
    load_runs<kRuns, kVector>(args.norm_weight.type, args.norm_weight.data, first, step, d, weight);
  };
  begin();
  const std::int32_t count = live_count(args.live);
  for (std::int64_t token = blockIdx.x; token < args.out.dims[0]; token += gridDim.x) {
    std::byte* normed = row_of(args.normed, token);
    if constexpr (kPasses > 0) {
      // A token that is not live is read, too: nothing waits for the count.
      Run kept[kPasses];
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        clear_run(kept[p]);
        if (i < d) residual_run<kVector, Types>(args, token, i, d, is_live(count, token), kept[p]);
      }
      if (!is_live(count, token)) break;
      load_weight();
      const NormScale scale = norm_scale(d, args.eps, [&](float factor) {
        float sum = 0;
#pragma unroll
        for (int p = 0; p < kPasses; ++p) add_squares(kept[p], factor, sum);
        return sum_row<false>(sum, shared);
      });
#pragma unroll
      for (int p = 0; p < kPasses; ++p) {
        const std::int64_t i = first + p * step;
        Run by;
        as_floats(args.norm_weight.type, weight[p], by);
        norm_run(kept[p], by, scale, kept[p]);
        if (i < d) store_run<kVector>(args.normed.type, normed, i, d, kept[p]);
        if constexpr (kBank && Types::kKnown) {
          if (i < d) put_in_bf16_bank(args.bank, token, i, kept[p]);
        } else if (kBank && i < d) {
          put_in_bank(args.bank, token, i, d, kept[p]);
        }
      }
    } else {
      if (!is_live(count, token)) break;
      for (std::int64_t i = first; i < d; i += step) {
        Run run;
        residual_run<kVector>(args, token, i, d, true, run);
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
        Run by;
        load_run<kVector>(args.out.type, residual, i, d, run);
        load_run<kVector>(args.norm_weight.type, args.norm_weight.data, i, d, by);
        norm_run(run, by, scale, run);
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
  const bool bank = kVector && args.bank.given();
  if constexpr (kVector) {
    if (row_passes(d) == 1 && args.rows.type == DType::bf16 && args.out.type == DType::f32 &&
        (!bank || args.bank.bf16 != nullptr)) {
      return bank ? launch(combine_norm_kernel<1, true, true, PromptTypes>, plan, stream, args)
                  : launch(combine_norm_kernel<1, true, false, PromptTypes>, plan, stream, args);
    }
  }
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
  if (vector && takes_combine_few(args)) return launch_combine_few(args, stream);
  return vector ? launch_with<true>(args, stream) : launch_with<false>(args, stream);
}

}  // namespace conclave::cuda
