#include "backends/cuda/launch.cuh"
#include "backends/cuda/read_peak_plan.h"

namespace conclave::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kAtOnce = 8;

__global__ void __launch_bounds__(kThreads) read_all(const uint4* from, std::int64_t words, std::uint32_t* sink) {
  begin();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  std::uint32_t all = 0;
  std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + (kAtOnce - 1) * step < words; i += kAtOnce * step) {
    uint4 word[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) word[j] = __ldcs(from + i + j * step);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) all ^= word[j].x ^ word[j].y ^ word[j].z ^ word[j].w;
  }
  for (; i < words; i += step) all ^= from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (all == 0x9E3779B9U) *sink = all;  // hardly ever, but nobody knows
}

}  // namespace

int launch_read(const std::byte* from, std::int64_t bytes, std::uint32_t* sink, int multiprocessors,
                const Stream& stream) {
  return launch(read_all, {.blocks = 4 * multiprocessors, .threads = kThreads}, stream,
                reinterpret_cast<const uint4*>(from), bytes / 16, sink);
}

}  // namespace conclave::cuda
