#include "backends/cuda/few_passes.cuh"
#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/few_work.cuh"
#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

// Warps that share tiles.
template <DType type>
struct SharedWork {
  const FewWork<type, Fetcher<type>, kMaxSegment>& of;
  float4* terms;  // [step % 2][warp][2][lane]
  int& step;

  // Groups of tiles first .. end - 1, each by all warps of the block.
  __device__ __forceinline__ void multiply(int first, int end) const {
    const UnitArgs& args = of.args;
    Fetcher<type>& fetcher = of.fetcher;
    const int lane = threadIdx.x % kWarp;
    const int warp = threadIdx.x / kWarp;
    const int share = few_share(args.chunks);
    const int tiles = few_tiles(args.chunks);
    const int tile = warp / share;
    const int mine = warp - tile * share;
    int adds = 0;  // the one of a tile's warps that adds up this time
#pragma unroll 1
    for (int part = first; part < end; ++part) {
      const FewColumns columns = fetcher.run.columns(args, part * tiles + tile);
      const LaneRows at = LaneRows::find<1>(fetcher.run, part * tiles + tile, of.rows);
      const typename Fetcher<type>::Place place = fetcher.place(columns);
      float y[1][4] = {};
#pragma unroll 1
      for (int c0 = 0; c0 < args.chunks; c0 += kMaxSegment) {
        const int c = c0 + mine;
        float4* const to = terms + step % 2 * (kFewWarps * 2 * kWarp) + lane;
        if (tile < tiles && c < args.chunks) {
          if (args.chunks > kMaxSegment || part == first) {
            __syncwarp();
            const auto where = [&](int i) { return RowPlace{i, warp, c}; };
            stage_rows<type>(args, of.slots, fetcher.run.rows[0], of.rows, where, [] {});
            __syncwarp();
          }
          float add[4];
          float less[4];
          fetcher.await(args);
          multiply_tile<type, 1, kMaxSegment>(fetcher.weights(of.rings, place, c, 0), at, warp,
                                              [&](int, int e, float a, float l) { add[e] = a, less[e] = l; });
          to[warp * 2 * kWarp] = make_float4(add[0], add[1], add[2], add[3]);
          if constexpr (is_affine(type)) to[(warp * 2 + 1) * kWarp] = make_float4(less[0], less[1], less[2], less[3]);
        }
        __syncthreads();
        if (tile < tiles && mine == adds) {
          const float4* from = to + tile * share * 2 * kWarp;
          const int count = min(args.chunks - c0, share);
#pragma unroll 4
          for (int k = 0; k < count; ++k) {
            const float4 add = from[k * 2 * kWarp];
            const float4 less = is_affine(type) ? from[(k * 2 + 1) * kWarp] : float4{};
            add_to<type>(y[0][0], add.x, less.x);
            add_to<type>(y[0][1], add.y, less.y);
            add_to<type>(y[0][2], add.z, less.z);
            add_to<type>(y[0][3], add.w, less.w);
          }
        }
        ++step;
      }
      if (tile < tiles && mine == adds) store_tile<1>(columns, fetcher.first_column(), of.slots, y);
      adds = adds + 1 == share ? 0 : adds + 1;
    }
  }
};

// `parts`: few_parts().
template <DType type, bool kShares>
__global__ void __launch_bounds__(kFewThreads, 2) few_rows(const __grid_constant__ UnitArgs args, const int parts) {
  extern __shared__ __align__(32) int4 shared_words[];  // copies are of 32 bytes
  __shared__ ActiveLists active;
  __shared__ TableSlot slots[few_rows_at_once(kShares)];
  __shared__ TileRun runs[kFewWarps];
  const int warp = threadIdx.x / kWarp;
  const int share = few_share(args.chunks);

  auto* const shared = reinterpret_cast<std::byte*>(shared_words);
  std::byte* const staged = shared + kFewWarps * few_ring_bytes(type);
  const StagedRows<kMaxSegment> rows(staged, few_rows_at_once(kShares));
  Fetcher<type> fetcher(runs[warp], shared + warp * few_ring_bytes(type), kShares ? warp % share : 0,
                        kShares ? share : 1, kShares ? few_tiles(args.chunks) : kFewWarps);
  const FewWork<type, Fetcher<type>, kMaxSegment> work{args, fetcher, shared, rows, slots};
  int step = 0;
  go_through_lists<kShares>(args, parts, few_rows_at_once(kShares), active, slots, fetcher, [&](int first, int end) {
    if constexpr (kShares) {
      auto* const terms = reinterpret_cast<float4*>(staged + few_rows_bytes(kMaxSegment, true));
      SharedWork<type>{work, terms, step}.multiply(first, end);
    } else if (fetcher.run.rows[0] > kRowTile) {
      work.template multiply_own<2>();
    } else {
      work.template multiply_own<1>();
    }
  });
  await_copies<0>();
}

template <DType type>
int launch_of(const UnitArgs& args, std::int64_t max_active, const Stream& stream) {
  const bool gate_up = args.up != nullptr;
  const LaunchPlan plan = few_rows_plan(type, max_active, args.n, args.chunks, gate_up);
  if (shares_tiles(max_active, args.n, gate_up)) {
    return launch(few_rows<type, true>, plan, stream, args, few_parts(args.n, args.chunks, gate_up, true));
  }
  return launch(few_rows<type, false>, plan, stream, args, few_parts(args.n, args.chunks, gate_up, false));
}

}  // namespace

int launch_few_rows(const UnitArgs& args, std::int64_t max_active, const Stream& stream) {
  if (args.type == DType::q4_k) return launch_of<DType::q4_k>(args, max_active, stream);
  if (args.type == DType::q5_k) return launch_of<DType::q5_k>(args, max_active, stream);
  return launch_of<DType::q6_k>(args, max_active, stream);
}

}  // namespace conclave::cuda
