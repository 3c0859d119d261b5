#include "backends/cuda/element.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/rope_turn.cuh"

namespace conclave::cuda {
namespace {

__global__ void __launch_bounds__(kRopeThreads) rope_kernel(const __grid_constant__ RopeArgs args) {
  begin();
  __shared__ float2 turns[kRopePairs];  // cosine and sine, times the magnitude
  const int tid = static_cast<int>(threadIdx.x);
  const std::int64_t n_live = live_rows(args.live, args.x.dims[0]);
  const std::int64_t n_heads = args.x.dims[1];
  const std::int64_t d = args.x.dims[2];
  const std::int64_t half = args.n_rot / 2;
  const std::int64_t chunks = (n_heads + kRopeHeads - 1) / kRopeHeads;
  for (std::int64_t item = blockIdx.x; item < n_live * chunks; item += gridDim.x) {
    const std::int64_t t = item / chunks;
    const std::int64_t first_head = item % chunks * kRopeHeads;
    const int heads = static_cast<int>(n_heads - first_head < kRopeHeads ? n_heads - first_head : kRopeHeads);
    const double position = int_at(args.positions, t);
    for (std::int64_t from = 0; from < half; from += kRopePairs) {
      const int pairs = static_cast<int>(half - from < kRopePairs ? half - from : kRopePairs);
      __syncthreads();  // nobody still reads the turns before these
      for (int i = tid; i < pairs; i += kRopeThreads) turns[i] = turn_of(args, position, from + i);
      __syncthreads();
      for (int n = tid; n < heads * pairs; n += kRopeThreads) {
        const int i = n % pairs;
        const std::int64_t head = first_head + n / pairs;
        const std::int64_t first = args.neox ? from + i : 2 * (from + i);
        const std::int64_t second = args.neox ? first + half : first + 1;
        const std::byte* x = row_of(args.x, t, head);
        std::byte* out = row_of(args.out, t, head);
        const float a = load_float(args.x.type, x, first);
        const float b = load_float(args.x.type, x, second);
        const float2 turned = rotated(a, b, turns[i]);
        store_float(args.out.type, out, first, turned.x);
        store_float(args.out.type, out, second, turned.y);
      }
    }
    const std::int64_t rest = d - args.n_rot;
    for (std::int64_t n = tid; n < heads * rest; n += kRopeThreads) {
      const std::int64_t head = first_head + n / rest;
      const std::int64_t i = args.n_rot + n % rest;
      store_float(args.out.type, row_of(args.out, t, head), i, load_float(args.x.type, row_of(args.x, t, head), i));
    }
  }
}

}  // namespace

int launch_rope(const RopeArgs& args, const Stream& stream) {
  return launch(rope_kernel, rope_plan(args.x.dims[0], args.x.dims[1]), stream, args);
}

}  // namespace conclave::cuda
