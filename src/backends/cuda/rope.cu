#include "backends/cuda/element.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/rope_plan.h"

namespace conclave::cuda {
namespace {

// Cosine (x) and sine (y), good to f32. Below 2^40 f64 has bits enough for one step of reduction to -pi/4 .. pi/4.
__device__ double2 turn(double angle) {
  if (!(fabs(angle) < 0x1p40)) {
    double2 far;
    sincos(angle, &far.y, &far.x);
    return far;
  }
  constexpr double kHalfPi = 1.5707963267948966;
  constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer, whose lower bits are then the sum's
  const double shifted = angle * (1 / kHalfPi) + kRound;
  const double r = fma(-(shifted - kRound), kHalfPi, angle);
  const double z = r * r;
  const double sine = r * (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880)))));
  const double cosine = 1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800)))));
  const long long quadrant = __double_as_longlong(shifted);
  const bool odd = (quadrant & 1) != 0;
  const double first = odd ? sine : cosine;
  const double second = odd ? cosine : sine;
  return {((quadrant + 1) & 2) != 0 ? -first : first, (quadrant & 2) != 0 ? -second : second};
}

__device__ double frequency(const RopeArgs& args, std::int64_t i) {
  double f = 0;
  if (args.n_rot / 2 <= kRopePairs) {
    f = args.frequencies[i];
  } else {
    const double at = static_cast<double>(i);
    const double ramp = fmin(fmax((at - args.low) / args.width, 0.0), 1.0);
    f = pow(args.base, -2 * at / static_cast<double>(args.n_rot)) * ((1 - ramp) + ramp / args.factor);
  }
  if (args.factors.data == nullptr) return f;
  return f / static_cast<double>(*reinterpret_cast<const float*>(args.factors.data + i * args.factors.strides[0]));
}

__global__ void __launch_bounds__(kRopeThreads) rope_kernel(const __grid_constant__ RopeArgs args) {
  begin();
  __shared__ float2 turns[kRopePairs];  // cosine and sine, times the magnitude
  const int tid = static_cast<int>(threadIdx.x);
  const std::int64_t n_live = live_rows(args.live, args.x.dims[0]);
  const std::int64_t n_heads = args.x.dims[1];
  const std::int64_t d = args.x.dims[2];
  const std::int64_t half = args.n_rot / 2;
  const std::int64_t chunks = (n_heads + kRopeHeads - 1) / kRopeHeads;
  for (std::int64_t item = blockIdx.x; item < n_live * chunks; item += gridDim.x) {
    const std::int64_t t = item / chunks;
    const std::int64_t first_head = item % chunks * kRopeHeads;
    const int heads = static_cast<int>(n_heads - first_head < kRopeHeads ? n_heads - first_head : kRopeHeads);
    const double position = int_at(args.positions, t);
    for (std::int64_t from = 0; from < half; from += kRopePairs) {
      const int pairs = static_cast<int>(half - from < kRopePairs ? half - from : kRopePairs);
      __syncthreads();  // nobody still reads the turns before these
      for (int i = tid; i < pairs; i += kRopeThreads) {
        const double2 at = turn(position * frequency(args, from + i));
        turns[i] = {static_cast<float>(args.magnitude * at.x), static_cast<float>(args.magnitude * at.y)};
      }
      __syncthreads();
      for (int n = tid; n < heads * pairs; n += kRopeThreads) {
        const int i = n % pairs;
        const std::int64_t head = first_head + n / pairs;
        const std::int64_t first = args.neox ? from + i : 2 * (from + i);
        const std::int64_t second = args.neox ? first + half : first + 1;
        const std::byte* x = row_of(args.x, t, head);
        std::byte* out = row_of(args.out, t, head);
        const float a = load_float(args.x.type, x, first);
        const float b = load_float(args.x.type, x, second);
        const float2 at = turns[i];
        store_float(args.out.type, out, first, a * at.x - b * at.y);
        store_float(args.out.type, out, second, a * at.y + b * at.x);
      }
    }
    const std::int64_t rest = d - args.n_rot;
    for (std::int64_t n = tid; n < heads * rest; n += kRopeThreads) {
      const std::int64_t head = first_head + n / rest;
      const std::int64_t i = args.n_rot + n % rest;
      store_float(args.out.type, row_of(args.out, t, head), i, load_float(args.x.type, row_of(args.x, t, head), i));
    }
  }
}

}  // namespace

int launch_rope(const RopeArgs& args, const Stream& stream) {
  return launch(rope_kernel, rope_plan(args.x.dims[0], args.x.dims[1]), stream, args);
}

}  // namespace conclave::cuda
