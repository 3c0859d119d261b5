#include "backends/cuda/lone_row.cuh"

namespace conclave::cuda {
namespace {

// kHalves: runs of eight superblocks that a column has.
template <int kHalves>
__global__ void __launch_bounds__(kLoneThreads, 2)
    lone_rows(const __grid_constant__ LoneRowsArgs args, const __grid_constant__ LoneSpace space) {
#if CONCLAVE_HOPPER
  extern __shared__ __align__(16) std::byte lone_bytes[];
  __shared__ float of_warp[kLoneWarps];
  const LoneBlock block{lone_bytes, space};
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const LoneItems items(block);
  // The matrix that an item is a column of; the column in its place.
  const auto matrix_of = [&](int& item) {
    int i = 0;
    if (item >= args.of[0].n) {
      item -= args.of[0].n;
      i = 1;
      if (item >= args.of[1].n) {
        item -= args.of[1].n;
        i = 2;
      }
    }
    return i;
  };
  const auto bytes = [&](int item) { return args.of[matrix_of(item)].bytes; };
  const auto source = [&](int item, int) {
    const LoneMatrix& matrix = args.of[matrix_of(item)];
    return matrix.w + item * matrix.column;
  };
  items.begin_copies(1, bytes, source);
  LoneRun run(args.row);
  begin();
  const bool live = live_count(args.live) > 0;
  run.load(args.row.x);
  if (args.row.norm_weight != nullptr) run.norm(args.row, live, block.floats(), of_warp);
  bool unusual = false;
  if (run.has) unusual = put_superblock(block, items.warp, run.v);
  const bool plain = __syncthreads_or(unusual) != 0;

  float before = 0;  // of the residual, of item `lane` of those that are summed up together
  const auto start = [&](int item) {
    const int column = item + lane * kLoneWarps;
    if (args.residual != nullptr && lane < space.held && column < items.last) before = args.residual[column];
  };
  const auto multiply = [&](int item, const std::byte* weights, float2* terms) {
    const auto of_type = [&](auto type) {
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const unsigned mine = half * kPassUnits + lane / 4;
        const unsigned c = min(mine, static_cast<unsigned>(space.chunks) - 1);
        LoneQuarter<type()> row;
        row.load(block, c, lane % 4);
        const typename QuarterUnit<type()>::Place place(c, lane % 4, space.chunks);
        multiply_units<type()>(weights, place, mine == c, row, terms + c);
      }
    };
    const DType type = args.of[matrix_of(item)].type;
    if (type == DType::q4_k) {
      of_type(std::integral_constant<DType, DType::q4_k>{});
    } else if (type == DType::q6_k) {
      of_type(std::integral_constant<DType, DType::q6_k>{});
    } else {
      of_type(std::integral_constant<DType, DType::q5_k>{});
    }
  };
  const auto finish = [&](int item, const float2* terms, int count) {
    if (lane >= count || !live) return;
    int column = item + lane * kLoneWarps;
    const LoneMatrix& matrix = args.of[matrix_of(column)];
    float y = 0;
    if (plain) {
      const float* row = args.row.norm_weight != nullptr ? block.floats() : args.row.x;
      y = plain_dot({reinterpret_cast<const std::byte*>(row), DType::f32, matrix.w + column * matrix.column,
                     matrix.type, matrix.type == DType::q6_k, args.row.k});
    } else if (matrix.type == DType::q6_k) {
      y = column_total<DType::q6_k>(terms + lane * space.item_units, space.chunks);
    } else {
      y = column_total<DType::q4_k>(terms + lane * space.item_units, space.chunks);
    }
    if (matrix.bias != nullptr) y += matrix.bias[column];
    matrix.out[column] = y;
    if (args.residual != nullptr) args.residual[column] = before + y;
  };
  items.run(1, bytes, source, start, multiply, finish);
#endif
}

__global__ void __launch_bounds__(kLoneThreads) lone_router(const __grid_constant__ LoneRouterArgs args, int columns) {
#if CONCLAVE_HOPPER
  extern __shared__ __align__(16) float router_floats[];
  __shared__ float of_warp[kLoneWarps];
  const unsigned lane = threadIdx.x % kWarp;
  const auto warp = static_cast<int>(threadIdx.x / kWarp);
  const int k = args.row.k;
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
  LoneRun run(args.row);
  begin();
  const bool live = live_count(args.live) > 0;
  run.load(args.row.x);
  run.norm(args.row, live, normed, of_warp);
  __syncthreads();
  if (!has) return;
  barrier_wait(barrier, 0);
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
  const LaunchPlan plan{.blocks = args.blocks, .threads = kLoneThreads, .shared_bytes = space.bytes};
  return launch(shape.chunks <= kPassUnits ? lone_rows<1> : lone_rows<2>, plan, stream, args, space);
}

int launch_lone_router(const LoneRouterArgs& args, const Stream& stream) {
  const std::int64_t columns = lone_router_columns(args.n, args.blocks);
  return launch(lone_router,
                {.blocks = ceil_div(args.n, columns),
                 .threads = kLoneThreads,
                 .shared_bytes = lone_router_shared(args.n, args.row.k, args.blocks)},
                stream, args, static_cast<int>(columns));
}

}  // namespace conclave::cuda
