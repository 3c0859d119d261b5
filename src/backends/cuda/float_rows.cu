#include "backends/cuda/element.cuh"
#include "backends/cuda/float_rows_plan.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/plain_dot.cuh"

namespace conclave::cuda {
namespace {

constexpr int kHeld = 64;  // weights that a lane holds: all of 2048

template <DType type>
__global__ void __launch_bounds__(kFloatThreads) float_rows(const __grid_constant__ FloatRowsArgs args) {
  const int lane = threadIdx.x % kWarp;
  const int column = static_cast<int>(blockIdx.x * (kFloatThreads / kWarp) + threadIdx.x / kWarp);
  const bool real = column < args.n;  // the same for a warp
  const std::byte* w = args.w + (real ? column : 0) * args.w_column;
  float held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = lane + i * kWarp < args.k ? load_float(type, w, lane + i * kWarp) : 0.0F;
  begin();
  if (!real) return;
  const auto rows = static_cast<int>(live_rows(args.live, args.rows));
  for (int r = 0; r < rows; ++r) {
    const auto* x = reinterpret_cast<const float*>(args.x + r * args.x_stride);
    float chain = 0.0F;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (lane + i * kWarp < args.k) chain = fmaf(x[lane + i * kWarp], held[i], chain);
    }
    for (int k = lane + kHeld * kWarp; k < args.k; k += kWarp) chain = fmaf(x[k], load_float(type, w, k), chain);
    float y = fold_lanes(chain);
    if (args.bias != nullptr) y += load_float(args.bias_type, args.bias, column);
    if (lane == 0) store_float(args.out_type, args.out + r * args.out_stride, column, y);
  }
}

}  // namespace

int launch_float_rows(const FloatRowsArgs& args, const Stream& stream) {
  const LaunchPlan plan = float_rows_plan(args.n);
  if (args.type == DType::f32) return launch(float_rows<DType::f32>, plan, stream, args);
  if (args.type == DType::f16) return launch(float_rows<DType::f16>, plan, stream, args);
  if (args.type == DType::bf16) return launch(float_rows<DType::bf16>, plan, stream, args);
  return cudaErrorInvalidValue;
}

}  // namespace conclave::cuda
