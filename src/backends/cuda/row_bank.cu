// Activations as int8: a warp takes one chunk of 256 values of one row.
#include "backends/cuda/row_bank.cuh"

#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kMaxGrid = 1 << 20;

__global__ void __launch_bounds__(kThreads) fill_bank(RowBank bank) {
  begin();
  const std::int64_t n = bank.n_rows * bank.chunks;
  const std::int64_t step = std::int64_t{gridDim.x} * (kThreads / kWarp);
  for (std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp; i < n; i += step) {
    fill_chunk(bank, i);
  }
}

}  // namespace

int launch_fill_bank(const RowBank& bank, const Stream& stream) {
  const std::int64_t blocks = ceil_div(bank.n_rows * bank.chunks, kThreads / kWarp);
  return launch(fill_bank, {.blocks = blocks < kMaxGrid ? blocks : kMaxGrid, .threads = kThreads}, stream, bank);
}

}  // namespace conclave::cuda
