#include "backends/cuda/head_rows_plan.h"
#include "backends/cuda/kv_put.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/rope_turn.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {
namespace {

__global__ void __launch_bounds__(kHeadWarps* kWarp) head_rows(const __grid_constant__ HeadRowsArgs args) {
  begin();
  __shared__ float2 turns[kRopePairs];
  __shared__ float rows[kHeadWarps][kHeadWidth];
  __shared__ RowShared unused;
  const int tid = static_cast<int>(threadIdx.x);
  const int lane = tid % kWarp;
  const int warp = tid / kWarp;
  const View& q = args.rope.x;
  const auto n_heads = static_cast<int>(q.dims[1]);
  const auto n_kv = static_cast<int>(args.k.dims[1]);
  const auto d = static_cast<int>(q.dims[2]);
  const auto half = static_cast<int>(args.rope.n_rot / 2);
  const int per_token = (n_heads + 2 * n_kv + kHeadWarps - 1) / kHeadWarps;
  const std::int64_t t = static_cast<int>(blockIdx.x) / per_token;
  const std::int64_t n_live = live_rows(args.rope.live, q.dims[0]);
  if (t >= n_live) return;
  const int unit = static_cast<int>(blockIdx.x) % per_token * kHeadWarps + warp;
  const bool of_q = unit < n_heads;
  const bool of_k = !of_q && unit < n_heads + n_kv;
  const bool of_v = !of_q && !of_k && unit < n_heads + 2 * n_kv;
  const int head = of_q ? unit : of_k ? unit - n_heads : unit - n_heads - n_kv;

  const double position = int_at(args.rope.positions, t);
  for (int i = tid; i < half; i += kHeadWarps * kWarp) turns[i] = turn_of(args.rope, position, i);

  // A place that a later token names is that token's.
  const std::int64_t place = place_number(args.write, t);
  bool replaced = false;
  for (std::int64_t later = t + 1 + tid; later < n_live; later += kHeadWarps * kWarp) {
    replaced = replaced || place_number(args.write, later) == place;
  }
  replaced = __syncthreads_or(replaced) != 0;  // and the turns are there

  if (of_q || of_k) {
    std::byte* row = of_q ? row_of(q, t, head) : row_of(args.k, t, head);
    const View& weight = of_q ? args.q_norm : args.k_norm;
    const int first = kRunLength * lane;
    Run run;
    clear_run(run);
    if (first < d) load_run<true>(DType::f32, row, first, d, run);
    if (weight.data != nullptr) {  // as rms_norm does a short row
      Run by;
      clear_run(by);
      if (first < d) load_run<true>(weight.type, weight.data, first, d, by);
      const NormScale scale = norm_scale(d, args.eps, [&](float factor) {
        float sum = 0;
        add_squares(run, factor, sum);
        return sum_row<true>(sum, unused);
      });
      norm_run(run, by, scale, run);
    }
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) {
      if (first + j < d) rows[warp][first + j] = run[j];
    }
    __syncwarp();
    for (int i = lane; i < half; i += kWarp) {
      const int a = args.rope.neox ? i : 2 * i;
      const int b = args.rope.neox ? i + half : 2 * i + 1;
      const float2 turned = rotated(rows[warp][a], rows[warp][b], turns[i]);
      rows[warp][a] = turned.x;
      rows[warp][b] = turned.y;
    }
    __syncwarp();
    for (int i = lane; i < d; i += kWarp) reinterpret_cast<float*>(row)[i] = rows[warp][i];
  }
  if (place < 0 || replaced || (!of_k && !of_v)) return;
  const View& pool = of_k ? args.write.k_pool : args.write.v_pool;
  const std::byte* v = row_of(args.write.v, t, head);
  const auto width = static_cast<int>(pool.dims[3]);
  std::byte* to = row_of(pool, place >> 32, place & 0xFFFFFFFF, head);
  for (int i = lane; i < width; i += kWarp) {
    put(pool.type, to, i, of_k ? rows[warp][i] : widened(args.write.v.type, v, i));
  }
}

}  // namespace

int launch_head_rows(const HeadRowsArgs& args, const Stream& stream) {
  return launch(head_rows, head_rows_plan(args.rope.x.dims[0], args.rope.x.dims[1], args.k.dims[1]), stream, args);
}

}  // namespace conclave::cuda
