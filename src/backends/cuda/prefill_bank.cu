// Rows into a bank: a thread makes 16 neighbours of it, from four times four elements of the row.
#include "backends/cuda/bf16_pair.cuh"
#include "backends/cuda/element.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/prefill_rows_plan.h"

namespace conclave::cuda {
namespace {

constexpr int kBankThreads = 256;
constexpr std::int64_t kMostBankBlocks = 1 << 20;

template <bool vectors>
__global__ void __launch_bounds__(kBankThreads) fill_prefill_bank(const __grid_constant__ PrefillBankArgs args) {
  begin();
  const View& x = args.x;
  const std::int64_t k = x.dims[x.rank - 1];
  const std::int64_t inner = x.rank == 3 ? x.dims[1] : 1;
  const std::int64_t steps = chunks_of(k) * (kChunk / 16);
  const std::int64_t all = live_rows(args.live, x.dims[0]) * inner * steps;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kBankThreads + threadIdx.x; i < all;
       i += std::int64_t{gridDim.x} * kBankThreads) {
    // Short division, where it will do.
    const std::int64_t row = i >> 32 == 0 ? static_cast<unsigned>(i) / static_cast<unsigned>(steps) : i / steps;
    const auto step = static_cast<int>(i - row * steps);
    const std::byte* from = x.rank == 3 ? row_of(x, row / inner, row % inner) : row_of(x, row);
    unsigned first[4];
    unsigned second[4];
#pragma unroll
    for (int t = 0; t < 4; ++t) {
      const std::int64_t at = step / 16 * kChunk + bank_element(step % 16 * 16 + 2 * t);
      float v[4] = {};
      if constexpr (vectors) {
        if (at < k) {
          const auto four = *reinterpret_cast<const float4*>(from + 4 * at);
          v[0] = four.x;
          v[1] = four.y;
          v[2] = four.z;
          v[3] = four.w;
        }
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) v[e] = at + e < k ? load_float(x.type, from, at + e) : 0.0F;
      }
      first[t] = bf16_pair(v[0], v[2]);
      second[t] = bf16_pair(v[1], v[3]);
    }
    auto* to = reinterpret_cast<uint4*>(args.bank + row * args.stride + std::int64_t{step} * 16);
    to[0] = {first[0], first[1], first[2], first[3]};
    to[1] = {second[0], second[1], second[2], second[3]};
  }
}

}  // namespace

int launch_fill_prefill_bank(const PrefillBankArgs& args, const Stream& stream) {
  const View& x = args.x;
  const BankedRows rows = banked_rows(x);
  const std::int64_t blocks = ceil_div(rows.count * chunks_of(x.dims[x.rank - 1]) * (kChunk / 16), kBankThreads);
  const LaunchPlan plan{.blocks = blocks < kMostBankBlocks ? blocks : kMostBankBlocks, .threads = kBankThreads};
  return launch(rows.in_fours ? fill_prefill_bank<true> : fill_prefill_bank<false>, plan, stream, args);
}

}  // namespace conclave::cuda
