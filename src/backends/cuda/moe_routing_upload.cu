// One value into a run of integers.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/moe_routing_upload_plan.h"

namespace conclave::cuda {
namespace {

__global__ void __launch_bounds__(kFillThreads) fill(const FillArgs args) {
  begin();
  const std::int64_t threads = std::int64_t{gridDim.x} * kFillThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kFillThreads + threadIdx.x; i < args.count; i += threads) {
    args.to[i] = args.value;
  }
}

}  // namespace

int launch_fill(const FillArgs& args, const Stream& stream) {
  return launch(fill, fill_plan(args.count), stream, args);
}

}  // namespace conclave::cuda
