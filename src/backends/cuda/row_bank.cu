// Activations as int8: a warp takes one chunk of 256 values of one row, eight values a lane.
#include "backends/cuda/element.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/product_plan.h"
#include "backends/cuda/quantize.cuh"

namespace conclave::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kMaxGrid = 1 << 20;

__global__ void __launch_bounds__(kThreads) fill_bank(RowBank bank) {
  begin();
  const int lane = threadIdx.x % kWarp;
  const std::int64_t n = bank.n_rows * bank.chunks;
  const std::int64_t step = std::int64_t{gridDim.x} * (kThreads / kWarp);
  for (std::int64_t i = std::int64_t{blockIdx.x} * (kThreads / kWarp) + threadIdx.x / kWarp; i < n; i += step) {
    const std::int64_t row = i / bank.chunks;
    const std::int64_t c = i % bank.chunks;
    const std::byte* x =
        bank.x.rank == 3 ? row_of(bank.x, row / bank.x.dims[1], row % bank.x.dims[1]) : row_of(bank.x, row);
    float v[8];
    load_chunk(bank.x.type, x, c, bank.k, lane, v);
    const QuantizedLane q = quantize_lane(v);
    *reinterpret_cast<int2*>(bank.q + i * kChunk + 8 * lane) = make_int2(q.low, q.high);
    if (lane == 0) bank.scale[i] = q.scale;
    const int sum = sum_of_two(q);
    if (lane % 2 == 0) bank.sums[i * 16 + lane / 2] = __half_as_ushort(__int2half_rn(sum));
  }
}

}  // namespace

int launch_fill_bank(const RowBank& bank, const Stream& stream) {
  const std::int64_t blocks = ceil_div(bank.n_rows * bank.chunks, kThreads / kWarp);
  return launch(fill_bank, {.blocks = blocks < kMaxGrid ? blocks : kMaxGrid, .threads = kThreads}, stream, bank);
}

}  // namespace conclave::cuda
