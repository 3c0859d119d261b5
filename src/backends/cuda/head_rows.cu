#include "backends/cuda/head_rows_plan.h"
#include "backends/cuda/kv_put.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/rope_turn.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {
namespace {

// As rms_norm does a short row; `words`: the lane's of the weight. By whole warps.
__device__ __forceinline__ void norm_short_run(DType type, const RunWords& words, int d, float eps, Run& run) {
  const NormScale scale = norm_scale(d, eps, [&](float factor) {
    float sum = 0;
    add_squares(run, factor, sum);
    return fold_warp(sum, [](float a, float b) { return a + b; });
  });
  Run by;
  as_floats(type, words, by);
  norm_run(run, by, scale, run);
}

// The other element of each pair, and the pair's turn. `row` is the warp's own in shared memory.
__device__ __forceinline__ void find_pairs(const RopeArgs& rope, const float2* turns, const float* row, const Run& run,
                                           int first, Run& other, float2 (&by)[kRunLength]) {
  const auto n_rot = static_cast<int>(rope.n_rot);
  const int half = n_rot / 2;
  if (rope.neox && half % 4 == 0) {
#pragma unroll
    for (int j = 0; j < kRunLength; j += 4) {
      const int i = first + j;
      if (i >= n_rot) continue;
      const int pair = i < half ? i : i - half;
      const float4 four = *reinterpret_cast<const float4*>(row + (i < half ? i + half : pair));
      const float4 low = *reinterpret_cast<const float4*>(turns + pair);
      const float4 high = *reinterpret_cast<const float4*>(turns + pair + 2);
      other[j] = four.x, other[j + 1] = four.y, other[j + 2] = four.z, other[j + 3] = four.w;
      by[j] = {low.x, low.y}, by[j + 1] = {low.z, low.w}, by[j + 2] = {high.x, high.y}, by[j + 3] = {high.z, high.w};
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    const int i = first + j;
    if (i >= n_rot) continue;
    if (rope.neox) {
      other[j] = row[i < half ? i + half : i - half];
      by[j] = turns[i < half ? i : i - half];
    } else {
      other[j] = run[j ^ 1];
      by[j] = turns[i / 2];
    }
  }
}

// By whole warps.
__device__ __forceinline__ void rotate_run(const RopeArgs& rope, const float2* turns, float* row, int first, int d,
                                           Run& run) {
  const auto n_rot = static_cast<int>(rope.n_rot);
  __syncwarp();  // nobody still reads the row before this one
  if (first < d) store_run<true>(DType::f32, reinterpret_cast<std::byte*>(row), first, d, run);
  __syncwarp();
  Run other;
  float2 by[kRunLength];
  find_pairs(rope, turns, row, run, first, other, by);
#pragma unroll
  for (int j = 0; j < kRunLength; ++j) {
    const int i = first + j;
    if (i >= n_rot) continue;
    const bool is_first = rope.neox ? i < n_rot / 2 : j % 2 == 0;
    run[j] = is_first ? rotated(run[j], other[j], by[j]).x : rotated(other[j], run[j], by[j]).y;
  }
}

struct HeadShared {
  float2 turns[kRopePairs];
  float rows[kHeadWarps][kHeadWidth];
};

__global__ void __launch_bounds__(kHeadWarps* kWarp) head_rows(const __grid_constant__ HeadRowsArgs args) {
  const bool early = args.early && args.write.places == nullptr;  // places are written by the kernel before
  begin_unless(early);
  __shared__ __align__(16) HeadShared shared;
  const int tid = static_cast<int>(threadIdx.x);
  const int warp = tid / kWarp;
  const int first = tid % kWarp * kRunLength;
  const View& q = args.rope.x;
  const View& v = args.write.v;
  const auto n_heads = static_cast<int>(q.dims[1]);
  const auto n_kv = static_cast<int>(args.k.dims[1]);
  const auto d = static_cast<int>(q.dims[2]);
  const int n_units = n_heads + 2 * n_kv;                                // heads of q, of k, of v
  const unsigned blocks = gridDim.x / static_cast<unsigned>(q.dims[0]);  // of a token
  const std::int64_t t = blockIdx.x / blocks;
  const int step = static_cast<int>(blocks) * kHeadWarps;
  int unit = static_cast<int>(blockIdx.x % blocks) * kHeadWarps + warp;
  const std::int32_t count = live_count(args.rope.live);
  const double position = __ldcg(&int_at(args.rope.positions, t));

  const auto row_at = [&](int at) {
    return at < n_heads          ? row_of(q, t, at)
           : at < n_heads + n_kv ? row_of(args.k, t, at - n_heads)
                                 : row_of(v, t, at - n_heads - n_kv);
  };
  const auto fetch = [&](int at, Run& run) {
    clear_run(run);
    const bool of_v = at >= n_heads + n_kv;
    const int width = !of_v ? d : args.v_runs ? static_cast<int>(v.dims[2]) : 0;
    if (at < n_units && first < width) load_run<true>(DType::f32, row_at(at), first, width, run);
  };
  // Of the norm of the warp's head.
  const auto weight_words = [&](int at) {
    const View& weight = at < n_heads ? args.q_norm : args.k_norm;
    RunWords words{};
    if (weight.data != nullptr && at < n_heads + n_kv && first < d) {
      words = load_words<true>(weight.type, weight.data, first, d);
    }
    return words;
  };
  RunWords words = weight_words(unit);
  for (int i = tid; i < args.rope.n_rot / 2; i += kHeadWarps * kWarp) {
    shared.turns[i] = turn_of(args.rope, position, i);
  }
  const std::int64_t place = own_place<kHeadWarps * kWarp>(args.write, t);  // and the turns are there
  begin_if(early);
  Run run;
  fetch(unit, run);
  if (!is_live(count, t)) return;

  for (; unit < n_units; unit += step) {
    Run next;
    fetch(unit + step, next);
    const RunWords next_words = weight_words(unit + step);
    const bool of_q = unit < n_heads;
    const bool of_v = unit >= n_heads + n_kv;
    std::byte* row = row_at(unit);
    float* own_row = shared.rows[warp];
    if (!of_v) {
      const View& weight = of_q ? args.q_norm : args.k_norm;
      if (weight.data != nullptr) norm_short_run(weight.type, words, d, args.eps, run);
      rotate_run(args.rope, shared.turns, own_row, first, d, run);
      if (first < d) store_run<true>(DType::f32, row, first, d, run);
    }
    if (!of_q && place >= 0) {
      const View& pool = of_v ? args.write.v_pool : args.write.k_pool;
      const auto width = static_cast<int>(pool.dims[3]);
      std::byte* to = row_of(pool, place >> 32, place & 0xFFFFFFFF, of_v ? unit - n_heads - n_kv : unit - n_heads);
      const bool in_runs = !of_v || args.v_runs;
      if (in_runs && (of_v ? args.v_pool_runs : args.k_pool_runs)) {
        if (first < width) put_run(pool.type, to, first, run);
      } else {
        __syncwarp();
        if (in_runs && first < width) {
          store_run<true>(DType::f32, reinterpret_cast<std::byte*>(own_row), first, width, run);
        }
        __syncwarp();
        for (int i = tid % kWarp; i < width; i += kWarp) {
          put(pool.type, to, i, in_runs ? own_row[i] : widened(v.type, row, i));
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) run[j] = next[j];
    words = next_words;
  }
}

}  // namespace

int launch_head_rows(const HeadRowsArgs& args, const Stream& stream) {
  const int error = launch_kv_places(args.write, stream);
  if (error != cudaSuccess) return error;
  if (fits_lanes(args)) {
    return args.write.places != nullptr ? launch_many_heads(args, stream) : launch_few_heads(args, stream);
  }
  return launch(head_rows, head_rows_plan(args.rope.x.dims[0], args.rope.x.dims[1], args.k.dims[1]), stream, args);
}

}  // namespace conclave::cuda
