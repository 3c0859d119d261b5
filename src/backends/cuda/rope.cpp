#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/rope_plan.h"

namespace conclave::cuda {
namespace {

class CudaRope final : public CudaOp {
 public:
  explicit CudaRope(const Rope& op) : what_("rope " + shape_text(op.x.shape())) {
    args_.x = view_of(op.x);
    args_.positions = view_of(op.positions);
    args_.factors = view_of(op.factors);
    args_.out = view_of(op.out);
    args_.live = ints_of(op.live);
    args_.n_rot = op.n_rot;
    args_.neox = op.style == RopeStyle::neox;
    args_.magnitude = static_cast<double>(op.magnitude);
    if (op.n_rot / 2 <= kRopePairs) {
      Rope plain = op;
      plain.factors = {};  // they lie on the device, and only divide the frequencies
      const std::vector<double> frequencies = rope_frequencies(plain);
      std::copy(frequencies.begin(), frequencies.end(), args_.frequencies);
      return;
    }
    args_.base = static_cast<double>(op.base);
    if (op.scaling == RopeScaling::none) return;
    args_.factor = static_cast<double>(op.factor);
    // Linear scaling is a ramp that has ended before the first pair.
    args_.low = -1;
    args_.width = 1;
    if (op.scaling == RopeScaling::yarn) set_ramp(op);
  }
  void enqueue(const CudaRun& run) const override { check(launch_rope(args_, run.stream), what_); }

 private:
  // As rope_frequencies().
  void set_ramp(const Rope& op) {
    const auto n_rot = static_cast<double>(op.n_rot);
    const auto pair_of = [&](float rotations) {
      const double periods =
          static_cast<double>(op.original_context) / (2 * std::numbers::pi * static_cast<double>(rotations));
      return n_rot * std::log(periods) / (2 * std::log(args_.base));
    };
    args_.low = std::max(std::floor(pair_of(op.beta_fast)), 0.0);
    const double high = std::min(std::ceil(pair_of(op.beta_slow)), n_rot - 1);
    args_.width = std::max(high - args_.low, 0.001);
  }

  RopeArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const Rope& op, const Target&) {
  return std::make_unique<CudaRope>(op);
}

}  // namespace conclave::cuda
