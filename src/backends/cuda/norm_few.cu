#include "backends/cuda/norm_few.cuh"

#include "backends/cuda/launch.cuh"
#include "backends/cuda/norm_few_plan.h"

namespace conclave::cuda {
namespace {

template <bool kAdd>
__global__ void __launch_bounds__(kMaxRowThreads) norm_rows(const __grid_constant__ RmsNormArgs args) {
  __shared__ RowSums sums;
  const auto r = static_cast<int>(blockIdx.x);
  const int i = kRunLength * static_cast<int>(threadIdx.x);
  const auto d = static_cast<int>(args.x.dims[1]);
  std::byte* const x = row_of(args.x, r);
  Run weight;
  load_floats(args.weight.data, i, weight);
  begin();
  // A row that is not live is read, too: nothing waits for the count.
  const std::int32_t count = live_count(args.live);
  Run row;
  load_floats(x, i, row);
  if constexpr (kAdd) {
    Run add;
    load_floats(row_of(args.add, r), i, add);
#pragma unroll
    for (int e = 0; e < kRunLength; ++e) row[e] += add[e];
  }
  if (!is_live(count, r)) return;
  if constexpr (kAdd) store_run<true>(DType::f32, x, i, d, row);
  norm_few(row, weight, args.eps, 1, 0, sums, row_of(args.out, r), args.bank, r, i, d);
}

}  // namespace

int launch_norm_few(const RmsNormArgs& args, const Stream& stream) {
  const LaunchPlan plan = norm_few_plan(args.x.dims[0], args.x.dims[1]);
  return args.add.data != nullptr ? launch(norm_rows<true>, plan, stream, args)
                                  : launch(norm_rows<false>, plan, stream, args);
}

}  // namespace conclave::cuda
