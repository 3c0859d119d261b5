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

// A thread takes four bytes of levels at a time, and the scale with a block's first.
__global__ void __launch_bounds__(kThreads) spread_32(PlaneArgs args) {
  begin();
  const Planes32 planes{args.type, args.blocks};
  const int words = level_bytes(args.type) / 4;
  const int head = scale_bytes(args.type);
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < args.rows * args.blocks * words;
       i += step) {
    const auto word = static_cast<int>(i % words);
    const std::int64_t row = i / words / args.blocks;
    const std::int64_t b = i / words % args.blocks;
    const std::byte* from = args.from + row * args.from_stride + b * (head + 4 * words);
    std::byte* to = args.to + row * planes.row_bytes();
    std::uint32_t levels = 0;
    for (int byte = 0; byte < 4; ++byte) {
      levels |= static_cast<std::uint32_t>(from[head + 4 * word + byte]) << 8 * byte;
    }
    if (args.type == DType::mxfp4) levels = mxfp4_word(levels);
    reinterpret_cast<std::uint32_t*>(to + planes.levels(b))[word] = levels;
    if (word != 0) continue;
    for (int byte = 0; byte < head; ++byte) to[planes.scales(b) + byte] = from[byte];
  }
}

}  // namespace

int launch_spread(const PlaneArgs& args, const Stream& stream) {
  const bool q6_k = args.type == DType::q6_k;
  const std::int64_t blocks =
      ceil_div(args.rows * args.blocks, q6_k ? kThreads / kWarp : 4 * kThreads / level_bytes(args.type));
  const LaunchPlan plan{.blocks = blocks < kMaxGrid ? blocks : kMaxGrid, .threads = kThreads};
  return launch(q6_k ? spread_q6_k : spread_32, plan, stream, args);
}

}  // namespace conclave::cuda
