#include "backends/cuda/element.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMaxGrid = 1 << 20;

// A warp takes a block at a time, two bytes a lane.
__global__ void __launch_bounds__(kThreads) spread_q6_k(PlaneArgs args) {
  begin();
  const std::int64_t step = std::int64_t{gridDim.x} * (kThreads / kWarp);
  for (std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp;
       i < args.rows * args.blocks; i += step) {
    const std::int64_t row = i / args.blocks;
    const std::int64_t b = i % args.blocks;
    const PlanesQ6K planes{args.blocks};
    const std::byte* from = args.from + row * args.from_stride + 210 * b;
    std::byte* to = args.to + row * planes.row_bytes();
    for (int at = 2 * (threadIdx.x % kWarp); at < 210; at += 2 * kWarp) {
      const std::int64_t place = at < 128   ? planes.ql(b) + at
                                 : at < 192 ? planes.qh(b) + at - 128
                                 : at < 208 ? planes.scales(b) + at - 192
                                            : planes.d(b);
      *reinterpret_cast<std::uint16_t*>(to + place) = *reinterpret_cast<const std::uint16_t*>(from + at);
    }
  }
}

}  // namespace

int launch_spread_q6_k(const PlaneArgs& args, const Stream& stream) {
  const std::int64_t blocks = ceil_div(args.rows * args.blocks, kThreads / kWarp);
  return launch(spread_q6_k, {.blocks = blocks < kMaxGrid ? blocks : kMaxGrid, .threads = kThreads}, stream, args);
}

}  // namespace conclave::cuda
