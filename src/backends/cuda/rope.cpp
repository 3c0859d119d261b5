#include "backends/cuda/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/launch_op.h"

namespace conclave::cuda {
namespace {

// As rope_frequencies().
void set_ramp(const Rope& op, RopeArgs& args) {
  const auto n_rot = static_cast<double>(op.n_rot);
  const auto pair_of = [&](float rotations) {
    const double periods =
        static_cast<double>(op.original_context) / (2 * std::numbers::pi * static_cast<double>(rotations));
    return n_rot * std::log(periods) / (2 * std::log(args.base));
  };
  args.low = std::max(std::floor(pair_of(op.beta_fast)), 0.0);
  const double high = std::min(std::ceil(pair_of(op.beta_slow)), n_rot - 1);
  args.width = std::max(high - args.low, 0.001);
}

}  // namespace

RopeArgs rope_args(const Rope& op) {
  RopeArgs args{.x = view_of(op.x),
                .positions = view_of(op.positions),
                .factors = view_of(op.factors),
                .out = view_of(op.out),
                .live = ints_of(op.live),
                .n_rot = op.n_rot,
                .neox = op.style == RopeStyle::neox,
                .magnitude = static_cast<double>(op.magnitude)};
  if (op.n_rot / 2 <= kRopePairs) {
    Rope plain = op;
    plain.factors = {};  // they lie on the device, and only divide the frequencies
    const std::vector<double> frequencies = rope_frequencies(plain);
    std::copy(frequencies.begin(), frequencies.end(), args.frequencies);
    return args;
  }
  args.base = static_cast<double>(op.base);
  if (op.scaling == RopeScaling::none) return args;
  args.factor = static_cast<double>(op.factor);
  // Linear scaling is a ramp that has ended before the first pair.
  args.low = -1;
  args.width = 1;
  if (op.scaling == RopeScaling::yarn) set_ramp(op, args);
  return args;
}

std::unique_ptr<CudaOp> make_cuda_op(const Rope& op, const Target&) {
  return launch_op(launch_rope, rope_args(op), "rope " + shape_text(op.x.shape()));
}

}  // namespace conclave::cuda
