#include <utility>

#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/float_bulk_plan.h"
#include "backends/cuda/float_chains.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

#if __CUDA_ARCH__ >= 900

template <int kStages>
struct BulkBarriers {
  std::uint64_t full[kStages];   // a piece is there
  std::uint64_t empty[kStages];  // it has been read
};

// By one warp: a lane has a row or a column. Past the last one it is the last again: computed and not used.
template <std::size_t kTile>
__device__ __forceinline__ void copy_pieces(const FloatRowsArgs& args, int first_row, int first_column,
                                            const std::byte* pieces, BulkBarriers<kBulkTiles[kTile].stages()>& at) {
  constexpr BulkTile kOf = kBulkTiles[kTile];
  const int line = static_cast<int>(threadIdx.x) % kWarp;
  const bool is_row = line < kOf.rows();
  const bool is_column = !is_row && line < kOf.lines();
  const std::byte* from = is_row ? args.x + min(first_row + line, args.rows - 1) * args.x_stride
                                 : args.w + min(first_column + line - kOf.rows(), args.n - 1) * args.w_column;
  const unsigned to = shared_address(pieces) + line * kBulkPitch;
  const int count = (args.k + kBulkPiece - 1) / kBulkPiece;
  const auto bytes_of = [&](int piece) {
    return 4U * static_cast<unsigned>(min(kBulkPiece, args.k - piece * kBulkPiece));
  };
  const auto expect = [&](int piece, int place) {
    if (line == 0) expect_bytes(&at.full[place], kOf.lines() * bytes_of(piece));
    __syncwarp();
  };
  const auto copy = [&](int piece, int place) {
    copy_bulk(to + place * kOf.stage_bytes(), from + std::int64_t{kBulkPitch} * piece, bytes_of(piece),
              &at.full[place]);
  };
  const int ahead = min(count, kOf.stages());
#pragma unroll 1
  for (int piece = 0; piece < ahead; ++piece) {
    expect(piece, piece);
    if (is_column) copy(piece, piece);
  }
  begin();
#pragma unroll 1
  for (int piece = 0; piece < ahead; ++piece) {
    if (is_row) copy(piece, piece);
  }
  Ring<kOf.stages()> ring;
#pragma unroll 1
  for (int piece = ahead; piece < count; ++piece, ring.next()) {
    barrier_wait(&at.empty[ring.place], ring.parity);
    expect(piece, ring.place);
    if (is_row || is_column) copy(piece, ring.place);
  }
}

#endif

// Before sm_90 it has no body: nothing launches it there.
template <std::size_t kTile>
__global__ void __launch_bounds__(kBulkThreads, 1) float_bulk(const __grid_constant__ FloatRowsArgs args) {
#if __CUDA_ARCH__ < 900
  begin();
#else
  constexpr BulkTile kOf = kBulkTiles[kTile];
  constexpr int kChains = kOf.warp_rows * kOf.warp_columns;
  extern __shared__ __align__(128) std::byte bulk_shared[];
  __shared__ BulkBarriers<kOf.stages()> at;
  const int lane = threadIdx.x % kWarp;
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  // Neighbouring blocks share columns.
  const int row_tiles = (args.rows + kOf.rows() - 1) / kOf.rows();
  const int first_column = static_cast<int>(blockIdx.x) / row_tiles * kOf.columns();
  const int first_row = (static_cast<int>(blockIdx.x) - first_column / kOf.columns() * row_tiles) * kOf.rows();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kOf.stages(); ++i) {
      barrier_init(&at.full[i], 1);
      barrier_init(&at.empty[i], kBulkWarps);
    }
    end_barrier_init();
  }
  __syncthreads();
  if (warp == kBulkWarps) {
    copy_pieces<kTile>(args, first_row, first_column, bulk_shared, at);
    return;
  }
  begin();
  const std::int32_t live = live_count(args.live);

  const int own_row = warp / 2 * kOf.warp_rows;
  const int own_column = warp % 2 * kOf.warp_columns;
  const auto add = [&](const std::byte* xs, int i, float(&chains)[kChains]) {
    add_products<DType::f32, kOf.warp_rows, kOf.warp_columns, kBulkPitch>(
        xs, xs + (kOf.rows() + own_column - own_row) * kBulkPitch, i, chains);
  };
  float chains[kChains] = {};
  Ring<kOf.stages()> ring;
#pragma unroll 1
  for (int left = args.k; left > 0; left -= kBulkPiece, ring.next()) {
    barrier_wait(&at.full[ring.place], ring.parity);
    const std::byte* xs = bulk_shared + ring.place * kOf.stage_bytes() + own_row * kBulkPitch;
    if (left >= kBulkPiece) {
#pragma unroll 4
      for (int i = 0; i < kBulkPiece; i += kWarp) add(xs, i + lane, chains);
    } else {
#pragma unroll 1
      for (int i = 0; i < left; i += kWarp) add(xs, i + lane, chains);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(&at.empty[ring.place]);
  }
  fold_many<kChains>(chains, lane);
  store_folded<kChains, kOf.warp_columns>(chains, [&](int r, int c, float y) {
    const int row = first_row + own_row + r;
    const int column = first_column + own_column + c;
    if (row < min(live, args.rows) && column < args.n) store_output(args, row, column, y);
  });
#endif
}

template <std::size_t... kTiles>
int launch_tile(const FloatRowsArgs& args, const Stream& stream, std::index_sequence<kTiles...> /*all*/) {
  constexpr decltype(&float_bulk<0>) kKernels[] = {float_bulk<kTiles>...};
  return launch(kKernels[bulk_tile(args.rows, args.n, args.multiprocessors)],
                float_bulk_plan(args.rows, args.n, args.multiprocessors), stream, args);
}

}  // namespace

int launch_float_bulk(const FloatRowsArgs& args, const Stream& stream) {
  return launch_tile(args, stream, std::make_index_sequence<kBulkTiles.size()>{});
}

}  // namespace conclave::cuda
