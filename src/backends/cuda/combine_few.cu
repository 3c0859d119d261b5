#include "backends/cuda/combine_few_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/norm_few.cuh"

namespace conclave::cuda {
namespace {

__global__ void __launch_bounds__(kMaxRowThreads, 1) combine_few(const __grid_constant__ CombineArgs args, int parts) {
  __shared__ RowSums sums;
  const int token = static_cast<int>(blockIdx.x) / parts;
  const int rank = static_cast<int>(blockIdx.x) - token * parts;
  const int i = kRunLength * (rank * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x));
  const auto d = static_cast<int>(args.out.dims[1]);
  if (parts > 1) arrive_at_cluster_relaxed();
  Run norm_weight;
  load_floats(args.norm_weight.data, i, norm_weight);
  begin_unless(args.early);

  const std::int32_t count = live_count(args.live);
  const auto top_k = static_cast<int>(args.weights.dims[1]);
  const auto* indices = reinterpret_cast<const std::int32_t*>(row_of(args.index, token));
  const auto* weights = reinterpret_cast<const float*>(row_of(args.weights, token));
  std::byte* const residual = row_of(args.out, token);
  std::int32_t index[kCombineSlots];
  float weight[kCombineSlots];
#pragma unroll
  for (int j = 0; j < kCombineSlots; ++j) {
    index[j] = j < top_k ? __ldcg(indices + j) : -1;
    weight[j] = j < top_k ? __ldcg(weights + j) : 0.0F;
  }
  Run row;
  load_floats(residual, i, row);
  const std::byte* from[kCombineSlots];
#pragma unroll
  for (int j = 0; j < kCombineSlots; ++j) {
    const bool is_there = index[j] >= 0 && index[j] < args.index_end;
    from[j] = !is_there ? nullptr : args.rows.rank == 2 ? row_of(args.rows, index[j]) : row_of(args.rows, token, j);
  }
  begin_if(args.early);

  // Slots ascending, sum = fma(weight, row, sum) from 0; then + shared. A token that is not live is read, too.
  Run x[kCombineSlots];
#pragma unroll
  for (int j = 0; j < kCombineSlots; ++j) {
    if (from[j] != nullptr) load_floats(from[j], i, x[j]);
  }
  Run shared;
  if (args.shared.data != nullptr) load_floats(row_of(args.shared, token), i, shared);
  if (parts > 1) await_cluster();  // all blocks are there
  if (!is_live(count, token)) return;
  Run sum;
  clear_run(sum);
#pragma unroll
  for (int j = 0; j < kCombineSlots; ++j) {
    if (from[j] == nullptr) continue;
#pragma unroll
    for (int e = 0; e < kRunLength; ++e) sum[e] = fmaf(weight[j], x[j][e], sum[e]);
  }
#pragma unroll
  for (int e = 0; e < kRunLength; ++e) {
    if (args.shared.data != nullptr) sum[e] += shared[e];
    row[e] += sum[e];
  }
  store_run<true>(DType::f32, residual, i, d, row);

  norm_few(row, norm_weight, args.eps, parts, rank, sums, row_of(args.normed, token), args.bank, token, i, d);
}

}  // namespace

int launch_combine_few(const CombineArgs& args, const Stream& stream) {
  const LaunchPlan plan = combine_few_plan(args.out.dims[0], args.out.dims[1], args.clusters);
  return launch(combine_few, plan, stream, args, plan.cluster);
}

}  // namespace conclave::cuda
