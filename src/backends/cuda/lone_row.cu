#include "backends/cuda/lone_ring.cuh"

namespace conclave::cuda {
namespace {

// kChunks: superblocks of a column, 8 or 16, or 0: any number.
template <int kChunks, bool kGoesRound>
__global__ void __launch_bounds__(kLoneThreads, 2)
    lone_rows(const __grid_constant__ LoneRowsArgs args, const __grid_constant__ LoneSpace space) {
#if CONCLAVE_HOPPER
  extern __shared__ __align__(16) std::byte lone_bytes[];
  __shared__ float of_warp[kLoneWarps];
  const LoneBlock block(lone_bytes, space);
  const unsigned lane = threadIdx.x % kWarp;
  LoneItems items(block);
  // Lane i copies what is of matrix i. Its columns lie side by side, and begin where items of the largest size would.
  const auto copy_of = [&](int i, int item, int count) {
    LoneCopy copy;
    int begins = 0;
#pragma unroll
    for (int m = 0; m < kLoneMatrices; ++m) {
      const LoneMatrix& matrix = args.of[m];
      const int from = max(item, begins);
      const int columns = min(item + count, begins + matrix.n) - from;
      if (m == i && columns > 0) {
        copy = {matrix.w + (from - begins) * matrix.column, (from - item) * space.item_bytes, columns * matrix.bytes};
      }
      begins += matrix.n;
    }
    return copy;
  };
  auto ring = lone_ring<kGoesRound>(items, copy_of);
  LoneRun<kChunks> run(args.row);
  begin();
  const bool live = live_count(args.live) > 0;
  run.load(args.row.x);
  if (args.row.norm_weight != nullptr) run.norm(args.row, live, block.floats(), of_warp);
  bool unusual = false;
  if (run.has) unusual = put_superblock(block, items.warp, quantize_lane(run.v));
  const bool plain = __syncthreads_or(unusual) != 0;

  float before = 0;  // of the residual, of item `lane` of those that are summed up together
  const auto start = [&](int item) {
    const int column = item + static_cast<int>(lane) * kLoneWarps;
    if (args.residual != nullptr && static_cast<int>(lane) < space.held && column < items.last) {
      before = args.residual[column];
    }
  };
  // The items that are columns of a matrix, which begin at `first`.
  const auto run_through = [&](const LoneMatrix& matrix, int first, auto type) {
    const LonePass<type(), kChunks> pass(block);
    const auto multiply = [&](unsigned slot, unsigned terms) {
      const int before_it = max(first - (items.item - static_cast<int>(items.warp)), 0);  // items of other matrices
      pass.multiply_column(
          slot + before_it * space.item_bytes + (static_cast<int>(items.warp) - before_it) * matrix.bytes, terms);
    };
    const auto finish = [&](int item, int count) {
      if (static_cast<int>(lane) >= count || !live) return;
      const int column = item - first + static_cast<int>(lane) * kLoneWarps;
      float y = 0;
      if (plain) [[unlikely]] {
        const float* row = args.row.norm_weight != nullptr ? block.floats() : args.row.x;
        y = plain_column(row, matrix.w + column * matrix.column, type(), args.row.k);
      } else {
        y = column_total<type(), kChunks>(items.terms + lane * space.item_units * 8, space.chunks);
      }
      if (matrix.bias != nullptr) y += matrix.bias[column];
      matrix.out[column] = y;
      if (args.residual != nullptr) args.residual[column] = before + y;
    };
    items.run(min(items.last, first + matrix.n), ring, start, multiply, finish);
  };
  int first = 0;
#pragma unroll 1
  for (int i = 0; i < args.count; ++i) {
    const LoneMatrix& matrix = args.of[i];
    if (matrix.type == DType::q4_k) {
      run_through(matrix, first, std::integral_constant<DType, DType::q4_k>{});
    } else if (matrix.type == DType::q6_k) {
      run_through(matrix, first, std::integral_constant<DType, DType::q6_k>{});
    } else {
      run_through(matrix, first, std::integral_constant<DType, DType::q5_k>{});
    }
    first += matrix.n;
  }
#endif
}

template <int kChunks>
__global__ void __launch_bounds__(kLoneThreads) lone_router(const __grid_constant__ LoneRouterArgs args, int columns) {
#if CONCLAVE_HOPPER
  extern __shared__ __align__(16) float router_floats[];
  __shared__ float of_warp[kLoneWarps];
  const unsigned lane = threadIdx.x % kWarp;
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const int k = kChunks > 0 ? kChunks * static_cast<int>(kChunk) : args.row.k;
  const int column = static_cast<int>(blockIdx.x) * columns + warp;
  const bool has = warp < columns && column < args.n;
  float* const normed = router_floats;
  float* const w = router_floats + (1 + warp) * k;
  auto* const barrier = reinterpret_cast<std::uint64_t*>(router_floats + (1 + columns) * k) + warp;
  if (has && lane == 0) {
    barrier_init(barrier, 1);
    end_barrier_init();
    expect_bytes(barrier, 4 * k);
    copy_bulk(w, args.w + column * args.column, 4 * k, barrier);
  }
  __syncwarp();
  LoneRun<kChunks> run(args.row);
  begin();
  const bool live = live_count(args.live) > 0;
  run.load(args.row.x);
  run.norm(args.row, live, normed, of_warp);
  __syncthreads();
  if (!has) return;
  barrier_wait_awake(barrier, 0);
  float chain = 0;
#pragma unroll 16
  for (int i = static_cast<int>(lane); i < k; i += kWarp) chain = fmaf(normed[i], w[i], chain);
  chain = fold_lanes(chain);
  if (args.bias != nullptr) chain += args.bias[column];
  if (lane == 0 && live) args.out[column] = chain;
#endif
}

}  // namespace

int launch_lone_rows(const LoneRowsArgs& args, const Stream& stream) {
  const LoneShape shape = lone_rows_shape(args);
  const LoneSpace space = lone_space(shape);
  const LaunchPlan plan{.blocks = args.blocks,
                        .threads = kLoneThreads,
                        .shared_bytes = std::max<std::int64_t>(space.bytes, args.least_shared)};
  const auto kernel = shape.chunks == 8    ? (space.goes_round ? lone_rows<8, true> : lone_rows<8, false>)
                      : shape.chunks == 16 ? (space.goes_round ? lone_rows<16, true> : lone_rows<16, false>)
                                           : lone_rows<0, true>;
  return launch(kernel, plan, stream, args, space);
}

int launch_lone_router(const LoneRouterArgs& args, const Stream& stream) {
  const std::int64_t columns = lone_router_columns(args.n, args.blocks);
  return launch(args.row.k == 8 * kChunk ? lone_router<8> : lone_router<0>,
                {.blocks = ceil_div(args.n, columns),
                 .threads = kLoneThreads,
                 .shared_bytes = lone_router_shared(args.n, args.row.k, args.blocks)},
                stream, args, static_cast<int>(columns));
}

}  // namespace conclave::cuda
