// Cosines and sines of rope, for its own kernel and for the one that also norms heads and writes the cache.
#pragma once

#include "backends/cuda/rope_plan.h"

namespace conclave::cuda {

// Cosine (x) and sine (y), good to f32. Below 2^40 f64 has bits enough for one step of reduction to -pi/4 .. pi/4.
__device__ __forceinline__ double2 turn(double angle) {
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

// `table`: args.frequencies, or where else they are.
__device__ __forceinline__ double frequency(const RopeArgs& args, std::int64_t i, const double* table) {
  double f = 0;
  if (args.n_rot / 2 <= kRopePairs) {
    f = table[i];
  } else {
    const double at = static_cast<double>(i);
    const double ramp = fmin(fmax((at - args.low) / args.width, 0.0), 1.0);
    f = pow(args.base, -2 * at / static_cast<double>(args.n_rot)) * ((1 - ramp) + ramp / args.factor);
  }
  if (args.factors.data == nullptr) return f;
  return f / static_cast<double>(*reinterpret_cast<const float*>(args.factors.data + i * args.factors.strides[0]));
}

// Of pair i at a position, times the magnitude.
__device__ __forceinline__ float2 turn_of(const RopeArgs& args, double position, std::int64_t i, const double* table) {
  const double2 at = turn(position * frequency(args, i, table));
  return {static_cast<float>(args.magnitude * at.x), static_cast<float>(args.magnitude * at.y)};
}
__device__ __forceinline__ float2 turn_of(const RopeArgs& args, double position, std::int64_t i) {
  return turn_of(args, position, i, args.frequencies);
}
__device__ __forceinline__ float2 rotated(float a, float b, float2 turn) {
  return {a * turn.x - b * turn.y, a * turn.y + b * turn.x};
}

}  // namespace conclave::cuda
