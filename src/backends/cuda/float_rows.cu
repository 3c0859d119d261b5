#include <utility>

#include "backends/cuda/float_bulk_plan.h"
#include "backends/cuda/float_chains.cuh"
#include "backends/cuda/float_split_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/mma.cuh"

namespace conclave::cuda {
namespace {

// Rows of x or of weights on their way to shared memory, some values of each at a time.
template <DType type, std::size_t kTile>
struct FloatCopies {
  static constexpr FloatTile kOf = kFloatTiles[kTile];
  static constexpr int kBytes = type == DType::f32 ? 4 : 2;
  const std::byte* from;
  std::int64_t stride;
  int count;
  int k;

  __device__ __forceinline__ void copy(std::byte* to, int step) const {
    const int lane = threadIdx.x % kWarp;
    const int bytes = min(kOf.step, k - step * kOf.step) * kBytes;
    const auto odd = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from)) | static_cast<unsigned>(stride) |
                     static_cast<unsigned>(k) * kBytes;
    for (int r = static_cast<int>(threadIdx.x / kWarp); r < count; r += kOf.down * kOf.across) {
      const std::byte* row = from + r * stride + std::int64_t{step} * kOf.step * kBytes;
      std::byte* row_to = to + r * kOf.pitch();
      if (odd % 16 == 0) {
#pragma unroll
        for (int at = 16 * lane; at < kOf.step * kBytes; at += 16 * kWarp) {
          if (at < bytes) copy_16(row_to + at, row + at);
        }
      } else if (odd % 4 == 0) {
        for (int at = 4 * lane; at < bytes; at += 4 * kWarp) copy_4(row_to + at, row + at);
      } else {
        for (int at = 2 * lane; at < bytes; at += 2 * kWarp) {
          *reinterpret_cast<std::uint16_t*>(row_to + at) = *reinterpret_cast<const std::uint16_t*>(row + at);
        }
      }
    }
  }
};

template <DType type, std::size_t kTile>
__global__ void __launch_bounds__(kFloatTiles[kTile].threads())
    float_tiles(const __grid_constant__ FloatRowsArgs args) {
  constexpr FloatTile kOf = kFloatTiles[kTile];
  constexpr int kStages = kOf.stages();
  constexpr int kChains = kOf.warp_rows * kOf.warp_columns;
  extern __shared__ __align__(16) std::byte stages[];
  const int lane = threadIdx.x % kWarp;
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  // Neighbouring blocks share columns: weights may be too many to stay in the cache.
  const int row_tiles = (args.rows + kOf.rows() - 1) / kOf.rows();
  const int first_row = static_cast<int>(blockIdx.x) % row_tiles * kOf.rows();
  const int first_column = static_cast<int>(blockIdx.x) / row_tiles * kOf.columns();
  const int steps = (args.k + kOf.step - 1) / kOf.step;
  const auto x_at = [&](int step) { return stages + step % kStages * kOf.stage_bytes(); };
  const auto w_at = [&](int step) { return x_at(step) + kOf.rows() * kOf.pitch(); };

  const FloatCopies<type, kTile> w{args.w + first_column * args.w_column, args.w_column,
                                   min(kOf.columns(), args.n - first_column), args.k};
  for (int step = 0; step < kStages - 1 && step < steps; ++step) w.copy(w_at(step), step);
  begin();
  const std::int32_t count = live_count(args.live);
  // Rows that are not live are fetched, too: nothing waits for the count.
  const FloatCopies<DType::f32, kTile> x{args.x + first_row * args.x_stride, args.x_stride,
                                         min(kOf.rows(), args.rows - first_row), args.k};
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) x.copy(x_at(step), step);
    end_copies();
  }
  if (first_row >= count) {
    await_copies<0>();
    return;
  }

  const int own_row = warp / kOf.across * kOf.warp_rows;
  const int own_column = warp % kOf.across * kOf.warp_columns;
  float chains[kChains] = {};
  for (int step = 0; step < steps; ++step) {
    await_copies<kStages - 2>();
    __syncthreads();
    const int next = step + kStages - 1;
    if (next < steps) {
      w.copy(w_at(next), next);
      x.copy(x_at(next), next);
    }
    end_copies();
    const std::byte* xs = x_at(step) + own_row * kOf.pitch();
    const std::byte* ws = w_at(step) + own_column * kOf.pitch();
    const int left = args.k - step * kOf.step;
    if (own_row >= x.count) continue;
    if (left >= kOf.step) {
#pragma unroll
      for (int i = 0; i < kOf.step; i += kWarp) {
        add_products<type, kOf.warp_rows, kOf.warp_columns, kOf.pitch()>(xs, ws, i + lane, chains);
      }
    } else {
#pragma unroll 1
      for (int i = lane; i < left; i += kWarp) {
        add_products<type, kOf.warp_rows, kOf.warp_columns, kOf.pitch()>(xs, ws, i, chains);
      }
    }
  }

  __syncwarp();
  fold_many<kChains>(chains, lane);
  store_folded<kChains, kOf.warp_columns>(chains, [&](int r, int c, float y) {
    const int row = own_row + r;
    const int column = own_column + c;
    if (row >= x.count || first_row + row >= count || column >= w.count) return;
    store_output(args, first_row + row, first_column + column, y);
  });
}

template <DType type, std::size_t... kTiles>
int launch_type(const FloatRowsArgs& args, const Stream& stream, std::index_sequence<kTiles...> /*all*/) {
  constexpr decltype(&float_tiles<type, 0>) kKernels[] = {float_tiles<type, kTiles>...};
  return launch(kKernels[float_tile(args.rows, args.n)], float_rows_plan(args.rows, args.n), stream, args);
}

}  // namespace

int launch_float_rows(const FloatRowsArgs& args, const Stream& stream) {
  if (takes_bulk(args)) return launch_float_bulk(args, stream);
  if (takes_split(args)) return launch_float_split(args, stream);
  constexpr std::make_index_sequence<kFloatTiles.size()> kAll;
  if (args.type == DType::f32) return launch_type<DType::f32>(args, stream, kAll);
  if (args.type == DType::f16) return launch_type<DType::f16>(args, stream, kAll);
  if (args.type == DType::bf16) return launch_type<DType::bf16>(args, stream, kAll);
  return cudaErrorInvalidValue;
}

}  // namespace conclave::cuda
