#include "backends/cuda/head_lanes.cuh"
#include "backends/cuda/head_rows_plan.h"
#include "backends/cuda/kv_put.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/rope_turn.cuh"

namespace conclave::cuda {
namespace {

// What is found of a token before its heads are there.
struct TokenFound {
  float2 turns[kRopePairs];
  std::int64_t place;
};

// Half of the warps find the turns, the others the place: -1 where a later token names it. By the whole block; a
// barrier.
template <int kWarps>
__device__ __forceinline__ std::int64_t find_token(const HeadRowsArgs& args, std::int64_t t, TokenFound& found) {
  constexpr int kHalf = kWarps * kWarp / 2;
  const int nth = static_cast<int>(threadIdx.x) % kHalf;
  bool replaced = false;
  if (threadIdx.x < kHalf) {
    const double position = __ldcg(&int_at(args.rope.positions, t));
    // As memory: as constants, lanes would get theirs one after another.
    const double* frequencies = args.rope.frequencies;
    asm volatile("" : "+l"(frequencies));
    for (int i = nth; i < args.rope.n_rot / 2; i += kHalf) {
      found.turns[i] = turn_of(args.rope, position, i, frequencies);
    }
  } else {
    const std::int64_t place = place_number(args.write, t);
    const std::int64_t n_live = live_rows(args.write.live, args.write.k.dims[0]);
    for (std::int64_t later = t + 1 + nth; later < n_live; later += kHalf) {
      replaced = replaced || place_number(args.write, later) == place;
    }
    if (nth == 0) found.place = place;
  }
  return __syncthreads_or(static_cast<int>(replaced)) != 0 ? -1 : found.place;
}

// A token has `parts` blocks, which take its heads in turns: of q, then of k, then of v.
template <int kLanes, bool kNeox, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) few_heads(const __grid_constant__ HeadRowsArgs args, int parts) {
  begin_unless(args.early);
  constexpr int kHeads = kWarp / kLanes;  // of a warp at a time
  constexpr int kWidth = kLanes * kRunLength;
  constexpr int kStep = kWarps * kHeads;
  __shared__ __align__(16) TokenFound found;
  const int tid = static_cast<int>(threadIdx.x);
  const int first = tid % kLanes * kRunLength;
  const int of_warp = tid / kWarp * kHeads;  // its first head of a step
  const int own = of_warp + tid % kWarp / kLanes;
  const int t = static_cast<int>(blockIdx.x) / parts;
  const auto n_heads = static_cast<int>(args.rope.x.dims[1]);
  const auto n_kv = static_cast<int>(args.k.dims[1]);
  const auto n_rot = static_cast<int>(args.rope.n_rot);
  const int q_steps = (n_heads + kStep - 1) / kStep;
  const int steps = q_steps + (2 * n_kv + kStep - 1) / kStep;
  const std::int32_t count = live_count(args.rope.live);
  const bool norms_q = args.q_norm.data != nullptr;
  const bool norms_k = args.k_norm.data != nullptr;
  Run q_weight;
  Run k_weight;
  if (norms_q) load_run<true>(args.q_norm.type, args.q_norm.data, first, kWidth, q_weight);
  if (norms_k) load_run<true>(args.k_norm.type, args.k_norm.data, first, kWidth, k_weight);
  const std::int64_t place = find_token<kWarps>(args, t, found);
  LaneTurns by;
  const bool turns_here = first < n_rot;
  if (turns_here) by.load<kNeox>(found.turns, first, n_rot / 2);
  begin_if(args.early);

  std::byte* const q = row_of(args.rope.x, t);
  // Heads past the last are the last: a lane reads some head, and writes none.
  const auto row_at = [&](int step) {
    if (step < q_steps) return q + min(step * kStep + own, n_heads - 1) * args.rope.x.strides[1];
    const int head = min((step - q_steps) * kStep + own, 2 * n_kv - 1);
    return head < n_kv ? row_of(args.k, t, head) : row_of(args.write.v, t, head - n_kv);
  };
  const auto fetch = [&](int step, Run& run) { load_run<true>(DType::f32, row_at(step), first, kWidth, run); };
  int step = static_cast<int>(blockIdx.x) - t * parts;
  Run run;
  fetch(step, run);  // what is not live is there, too: nothing waits for the count
  if (!is_live(count, t)) return;
#pragma unroll 1
  for (; step < steps; step += parts) {
    Run next;
    clear_run(next);
    if (step + parts < steps) fetch(step + parts, next);
    if (step < q_steps) {
      if (norms_q) norm_head<kLanes>(q_weight, args.eps, run);
      rotate_head<kNeox>(by, n_rot / 2, turns_here, run);
      if (step * kStep + own < n_heads) store_run<true>(DType::f32, row_at(step), first, kWidth, run);
    } else {
      const int base = (step - q_steps) * kStep;
      const int head = base + own;
      if (base + of_warp < n_kv) {
        Run turned;
#pragma unroll
        for (int j = 0; j < kRunLength; ++j) turned[j] = run[j];
        if (norms_k) norm_head<kLanes>(k_weight, args.eps, turned);
        rotate_head<kNeox>(by, n_rot / 2, turns_here, turned);
        if (head < n_kv) {
          store_run<true>(DType::f32, row_of(args.k, t, head), first, kWidth, turned);
#pragma unroll
          for (int j = 0; j < kRunLength; ++j) run[j] = turned[j];
        }
      }
      if (place >= 0 && head < 2 * n_kv) {
        const bool of_v = head >= n_kv;
        const View& pool = of_v ? args.write.v_pool : args.write.k_pool;
        put_run(pool.type, row_of(pool, place >> 32, place & 0xFFFFFFFF, of_v ? head - n_kv : head), first, run);
      }
    }
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) run[j] = next[j];
  }
}

template <int kLanes, int kWarps>
int launch_lanes(const HeadRowsArgs& args, const Stream& stream) {
  const LaunchPlan plan = few_heads_plan(args.rope.x.dims[0], args.rope.x.dims[1], args.k.dims[1], kLanes);
  const auto parts = static_cast<int>(plan.blocks / args.rope.x.dims[0]);
  return launch(args.rope.neox ? few_heads<kLanes, true, kWarps> : few_heads<kLanes, false, kWarps>, plan, stream, args,
                parts);
}

template <int kWarps>
int launch_warps(const HeadRowsArgs& args, const Stream& stream) {
  const std::int64_t d = args.rope.x.dims[2];
  return d == 64    ? launch_lanes<8, kWarps>(args, stream)
         : d == 128 ? launch_lanes<16, kWarps>(args, stream)
                    : launch_lanes<32, kWarps>(args, stream);
}

}  // namespace

int launch_few_heads(const HeadRowsArgs& args, const Stream& stream) {
  return few_head_warps(args.rope.x.dims[0]) == kFewHeadWarps ? launch_warps<kFewHeadWarps>(args, stream)
                                                              : launch_warps<kFewestHeadWarps>(args, stream);
}

}  // namespace conclave::cuda
