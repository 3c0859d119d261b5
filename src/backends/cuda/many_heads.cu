#include "backends/cuda/head_lanes.cuh"
#include "backends/cuda/head_rows_plan.h"
#include "backends/cuda/kv_put.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/rope_turn.cuh"

namespace conclave::cuda {
namespace {

template <int kLanes, bool kNeox>
__global__ void __launch_bounds__(kManyHeadWarps* kWarp) many_heads(const __grid_constant__ HeadRowsArgs args) {
  begin();
  constexpr int kHeads = kWarp / kLanes;  // of a warp at a time
  constexpr int kWidth = kLanes * kRunLength;
  constexpr int kStep = kManyHeadWarps * kHeads;
  __shared__ __align__(16) float2 turns[kRopePairs];
  const int tid = static_cast<int>(threadIdx.x);
  const int own = tid % kWarp / kLanes;
  const int first = tid % kLanes * kRunLength;
  const int of_warp = tid / kWarp * kHeads + own;  // a lane's first head
  const std::int64_t t = blockIdx.x;
  const auto n_heads = static_cast<int>(args.rope.x.dims[1]);
  const auto n_kv = static_cast<int>(args.k.dims[1]);
  const auto n_rot = static_cast<int>(args.rope.n_rot);
  const std::int32_t count = live_count(args.rope.live);
  const double position = int_at(args.rope.positions, t);
  const std::int64_t place = args.write.places[t];
  // Heads past the last are the last: a lane reads some head, and writes none.
  std::byte* const q = row_of(args.rope.x, t);
  const auto q_row = [&](int head) { return q + min(head, n_heads - 1) * args.rope.x.strides[1]; };
  const auto kv_row = [&](int head) {
    return head < n_kv ? row_of(args.k, t, head) : row_of(args.write.v, t, min(head, 2 * n_kv - 1) - n_kv);
  };
  const auto fetch = [&](const std::byte* row, Run& run) { load_run<true>(DType::f32, row, first, kWidth, run); };
  Run run;
  fetch(q_row(of_warp), run);  // what is not live is there, too: nothing waits for the count
  if (!is_live(count, t)) return;
  for (int i = tid; i < n_rot / 2; i += kManyHeadWarps * kWarp) turns[i] = turn_of(args.rope, position, i);
  __syncthreads();
  LaneTurns by;
  const bool turns_here = first < n_rot;
  if (turns_here) by.load<kNeox>(turns, first, n_rot / 2);
  Run weight;
  const auto turn = [&](Run& head) {
    if (args.q_norm.data != nullptr) norm_head<kLanes>(weight, args.eps, head);
    rotate_head<kNeox>(by, n_rot / 2, turns_here, head);
  };

  const View& q_norm = args.q_norm;
  if (q_norm.data != nullptr) load_run<true>(q_norm.type, q_norm.data, first, kWidth, weight);
#pragma unroll 1
  for (int base = of_warp - own; base < n_heads; base += kStep) {
    const int head = base + own;
    Run next;
    fetch(base + kStep < n_heads ? q_row(head + kStep) : kv_row(of_warp), next);
    turn(run);
    if (head < n_heads) store_run<true>(DType::f32, q_row(head), first, kWidth, run);
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) run[j] = next[j];
  }
  const View& k_norm = args.k_norm;
  if (k_norm.data != nullptr) load_run<true>(k_norm.type, k_norm.data, first, kWidth, weight);
#pragma unroll 1
  for (int base = of_warp - own; base < 2 * n_kv; base += kStep) {
    const int head = base + own;
    const bool of_v = head >= n_kv;
    if (head != of_warp || of_warp - own >= n_heads) fetch(kv_row(head), run);
    if (base < n_kv) {
      Run turned;
#pragma unroll
      for (int j = 0; j < kRunLength; ++j) turned[j] = run[j];
      turn(turned);
      if (!of_v) {
        store_run<true>(DType::f32, row_of(args.k, t, head), first, kWidth, turned);
#pragma unroll
        for (int j = 0; j < kRunLength; ++j) run[j] = turned[j];
      }
    }
    if (place < 0 || head >= 2 * n_kv) continue;
    const View& pool = of_v ? args.write.v_pool : args.write.k_pool;
    put_run(pool.type, row_of(pool, place >> 32, place & 0xFFFFFFFF, of_v ? head - n_kv : head), first, run);
  }
}

template <int kLanes>
int launch_lanes(const HeadRowsArgs& args, const Stream& stream) {
  const LaunchPlan plan{.blocks = args.rope.x.dims[0], .threads = kManyHeadWarps * kWarp};
  return launch(args.rope.neox ? many_heads<kLanes, true> : many_heads<kLanes, false>, plan, stream, args);
}

}  // namespace

int launch_many_heads(const HeadRowsArgs& args, const Stream& stream) {
  const std::int64_t d = args.rope.x.dims[2];
  return d == 64    ? launch_lanes<8>(args, stream)
         : d == 128 ? launch_lanes<16>(args, stream)
                    : launch_lanes<32>(args, stream);
}

}  // namespace conclave::cuda
