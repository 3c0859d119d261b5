#include <utility>

#include "backends/cuda/cluster.cuh"
#include "backends/cuda/element.cuh"
#include "backends/cuda/float_split_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/plain_dot.cuh"

namespace conclave::cuda {
namespace {

// A thread's share of the rows and columns of a tile on their way to shared memory. Rows past the last are the last.
template <std::size_t kTile>
struct SplitCopies {
  static constexpr SplitTile kOf = kSplitTiles[kTile];
  static constexpr int kApart = kOf.threads() / kSplitPieces;
  static constexpr int kRows = kOf.rows() / kApart;
  static constexpr int kColumns = kOf.columns() / kApart;
  const std::byte* from[kRows + kColumns];
  unsigned to;
  int block;  // of 32 values, in a step

  __device__ __forceinline__ SplitCopies(const FloatRowsArgs& args, int first_row, int first_column,
                                         const std::byte* stages) {
    const int tid = static_cast<int>(threadIdx.x);
    const int piece = tid % kSplitPieces;
    block = piece / 4;
    const int offset = 128 * block + 64 * (piece / 2 % 2) + 16 * (piece % 2);
    to = shared_address(stages) + tid / kSplitPieces * kSplitPitch + 16 * piece;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = min(first_row + tid / kSplitPieces + i * kApart, args.rows - 1);
      from[i] = args.x + row * args.x_stride + offset;
    }
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      const int column = min(first_column + tid / kSplitPieces + i * kApart, args.n - 1);
      from[kRows + i] = args.w + column * args.w_column + offset;
    }
  }

  // Step `at` of a block, which goes on with the other half where it has both.
  template <int first, int count>
  __device__ __forceinline__ void copy(int stage, int at, int steps, int rank, int k) const {
    const int half = kOf.both && at >= steps ? 1 : rank;
    const int step = kOf.both && at >= steps ? at - steps : at;
    if (kSplitStep * step + 32 * block >= k) return;
#pragma unroll
    for (int i = first; i < first + count; ++i) {
      copy_16(to + stage * kOf.stage_bytes() + i * kApart * kSplitPitch,
              from[i] + std::int64_t{4 * kSplitStep} * step + 32 * half);
    }
  }
};

// 16 chains of a block of 32 values.
template <int kRows, int kColumns>
__device__ __forceinline__ void add_split_products(const std::byte* xs, const std::byte* ws,
                                                   float (&chains)[2 * kRows * kColumns]) {
  float2 x[kRows];
  float2 w[kColumns];
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = *reinterpret_cast<const float2*>(xs + 2 * r * kSplitPitch);
#pragma unroll
  for (int c = 0; c < kColumns; ++c) w[c] = *reinterpret_cast<const float2*>(ws + 2 * c * kSplitPitch);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      float* two = chains + 2 * (r * kColumns + c);
      two[0] = fmaf(x[r].x, w[c].x, two[0]);
      two[1] = fmaf(x[r].y, w[c].y, two[1]);
    }
  }
}

template <std::size_t kTile>
__global__ void __launch_bounds__(kSplitTiles[kTile].threads(), 1)
    float_split(const __grid_constant__ FloatRowsArgs args) {
  constexpr SplitTile kOf = kSplitTiles[kTile];
  constexpr int kChains = 2 * kOf.outputs();
  using Copies = SplitCopies<kTile>;
  extern __shared__ __align__(16) std::byte split_shared[];
  auto* kept = reinterpret_cast<float*>(split_shared) + threadIdx.x;
  const std::byte* stages = split_shared + kOf.kept_bytes();
  const int lane = threadIdx.x % kWarp;
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const int rank = kOf.both ? 0 : static_cast<int>(blockIdx.x % 2);
  const int tile = static_cast<int>(blockIdx.x) / (kOf.both ? 1 : 2);
  const int row_tiles = (args.rows + kOf.rows() - 1) / kOf.rows();
  const int first_row = tile % row_tiles * kOf.rows();
  const int first_column = tile / row_tiles * kOf.columns();
  const int steps = (args.k + kSplitStep - 1) / kSplitStep;

  const Copies copies(args, first_row, first_column, stages);
  for (int at = 0; at < kOf.stages - 1; ++at) {
    copies.template copy<Copies::kRows, Copies::kColumns>(at, at, steps, rank, args.k);
  }
  begin();
  const std::int32_t count = live_count(args.live);
  for (int at = 0; at < kOf.stages - 1; ++at) {
    copies.template copy<0, Copies::kRows>(at, at, steps, rank, args.k);
    end_copies();
  }
  if (first_row >= count) {
    await_copies<0>();
    return;
  }
  if (!kOf.both) arrive_at_cluster();

  const int own_row = warp / kOf.across * 2 * kOf.lane_rows + lane / 2 % 2;
  const int own_column = warp % kOf.across * 2 * kOf.lane_columns + lane % 2;
  const std::byte* own_x = stages + own_row * kSplitPitch + 8 * (lane / 4);
  const std::byte* own_w = stages + (kOf.rows() + own_column) * kSplitPitch + 8 * (lane / 4);
  const auto add = [&](int stage, int block, float(&chains)[kChains]) {
    const int at = stage * kOf.stage_bytes() + 64 * block;
    add_split_products<kOf.lane_rows, kOf.lane_columns>(own_x + at, own_w + at, chains);
  };
  float chains[kChains];
  int stage = 0;
#pragma unroll 1
  for (int half = rank; half < (kOf.both ? 2 : rank + 1); ++half) {
#pragma unroll
    for (int i = 0; i < kChains; ++i) chains[i] = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      await_copies<kOf.stages - 2>();
      __syncthreads();
      const int to = stage == 0 ? kOf.stages - 1 : stage - 1;
      const int next = (half - rank) * steps + step + kOf.stages - 1;
      copies.template copy<0, Copies::kRows + Copies::kColumns>(to, next, steps, rank, args.k);
      end_copies();
      const int left = args.k - step * kSplitStep;
      if (left >= kSplitStep) {
#pragma unroll
        for (int block = 0; block < kSplitStep / 32; ++block) add(stage, block, chains);
      } else {
#pragma unroll 1
        for (int block = 0; block < left / 32; ++block) add(stage, block, chains);
      }
      stage = stage + 1 == kOf.stages ? 0 : stage + 1;
    }
    fold_between<kChains>(chains, 16);
    if (kOf.both && half == 0) {
#pragma unroll
      for (int i = 0; i < kOf.outputs(); ++i) kept[i * kOf.threads()] = chains[i];
    }
  }

  constexpr int kHeld = kOf.kept();
  if constexpr (!kOf.both) {
    const unsigned there = address_in_block(kept, 1 - rank);
    await_cluster();  // it is there
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      store_in_cluster(there + 4 * i * kOf.threads(), rank == 0 ? chains[i + kHeld] : chains[i]);
      if (rank != 0) chains[i] = chains[i + kHeld];
    }
    arrive_at_cluster();
    await_cluster();
  }
#pragma unroll
  for (int i = 0; i < kHeld; ++i) chains[i] += kept[i * kOf.threads()];
  fold_between<kHeld>(chains, 8);
  fold_between<kHeld / 2>(chains, 4);

  // A lane's outputs: of those that the folds and the other block left it.
  constexpr int kLeft = kHeld / 8;
  const int first =
      lane / 16 * (kOf.outputs() / 2) + rank * (kHeld / 2) + lane / 8 % 2 * (kHeld / 4) + lane / 4 % 2 * (kHeld / 8);
#pragma unroll
  for (int i = 0; i < kLeft; ++i) {
    const int row = first_row + own_row + 2 * ((first + i) / kOf.lane_columns);
    const int column = first_column + own_column + 2 * ((first + i) % kOf.lane_columns);
    if (row >= min(count, args.rows) || column >= args.n) continue;
    float y = chains[2 * i] + chains[2 * i + 1];
    if (args.bias != nullptr) y += load_float(args.bias_type, args.bias, column);
    store_float(args.out_type, args.out + row * args.out_stride, column, y);
  }
}

template <std::size_t... kTiles>
int launch_split(const FloatRowsArgs& args, const Stream& stream, std::index_sequence<kTiles...> /*all*/) {
  constexpr decltype(&float_split<0>) kKernels[] = {float_split<kTiles>...};
  return launch(kKernels[split_tile(args.rows, args.n, args.multiprocessors)],
                float_split_plan(args.rows, args.n, args.multiprocessors), stream, args);
}

}  // namespace

int launch_float_split(const FloatRowsArgs& args, const Stream& stream) {
  return launch_split(args, stream, std::make_index_sequence<kSplitTiles.size()>{});
}

}  // namespace conclave::cuda
