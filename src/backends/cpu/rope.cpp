// rope: the sines and cosines of a token once, in f64, then every head rotated in f32.
#include "ops/rope.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

struct Turn {
  double cos;
  double sin;
};

// Good to f32, for |angle| < 2^40: reduced to -pi/4 .. pi/4, then the series. f64 has bits enough for one step of
// reduction, and there is no call in it, so that a loop over pairs is cheap. (std::sin and std::cos: 40 ns a pair.)
Turn turn(double angle) {
  constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer, whose lower bits are then the sum's
  const double shifted = angle * (2 / std::numbers::pi) + kRound;
  const double r = angle - (shifted - kRound) * (std::numbers::pi / 2);
  const double z = r * r;
  const double sin = r * (1 + z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880)))));
  const double cos = 1 + z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800)))));
  const auto quadrant = std::bit_cast<std::uint64_t>(shifted);
  const bool odd = (quadrant & 1) != 0;
  const double first = odd ? sin : cos;
  const double second = odd ? cos : sin;
  return {.cos = ((quadrant + 1) & 2) != 0 ? -first : first, .sin = (quadrant & 2) != 0 ? -second : second};
}

class CpuRope final : public CpuOp {
 public:
  CpuRope(const Rope& op, const RowKernels& row) : op_(op), row_(row), d_(row_width(op.x)) {
    if (d_ == 0) return;
    Rope plain = op;
    plain.factors = {};  // they are read when the op runs, and only scale the frequencies
    frequencies_ = rope_frequencies(plain);
    x_ = local_.add<float>(d_);
    cos_ = local_.add<float>(op.n_rot / 2);
    sin_ = local_.add<float>(op.n_rot / 2);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  bool alone() const override { return rows_alone(op_.x.dim(0), op_.x.dim(1) * d_); }
  void run(const CpuRun& run) const override {
    float* x = scratch_at<float>(run.local, x_);
    float* cos = scratch_at<float>(run.local, cos_);
    float* sin = scratch_at<float>(run.local, sin_);
    const std::int64_t heads = op_.x.dim(1);
    const std::int64_t n_rows = d_ > 0 ? live_rows(op_.live, op_.x.dim(0)) : 0;
    for_rows(run.region, n_rows, heads * d_, [&](std::int64_t t) {
      fill_table(load_i32(op_.positions, {t}), cos, sin);
      for (std::int64_t h = 0; h < heads; ++h) {
        row_.load(op_.x.dtype, row_address(op_.x, {t, h}), x, d_);
        rotate(cos, sin, x);
        row_.store(op_.out.dtype, x, row_address(op_.out, {t, h}), d_);
      }
    });
  }

 private:
  void fill_table(double position, float* cos, float* sin) const {
    const double magnitude = static_cast<double>(op_.magnitude);
    const float* factors =
        op_.factors.defined() ? reinterpret_cast<const float*>(row_address(op_.factors, {})) : nullptr;
    for (std::size_t i = 0; i < frequencies_.size(); ++i) {
      const double own = factors != nullptr ? static_cast<double>(factors[i]) : 1.0;
      const double angle = position * (frequencies_[i] / own);
      const bool near = std::fabs(angle) < 0x1p40;
      const Turn at = near ? turn(angle) : Turn{.cos = std::cos(angle), .sin = std::sin(angle)};
      cos[i] = static_cast<float>(magnitude * at.cos);
      sin[i] = static_cast<float>(magnitude * at.sin);
    }
  }

  void rotate(const float* cos, const float* sin, float* x) const {
    const std::int64_t half = op_.n_rot / 2;
    if (op_.style == RopeStyle::neox) {
      row_.rotate(cos, sin, x, x + half, half);
      return;
    }
    for (std::int64_t i = 0; i < half; ++i) {
      const float a = x[2 * i];
      const float b = x[2 * i + 1];
      x[2 * i] = a * cos[i] - b * sin[i];
      x[2 * i + 1] = a * sin[i] + b * cos[i];
    }
  }

  Rope op_;
  const RowKernels& row_;
  std::int64_t d_;
  std::vector<double> frequencies_;
  ScratchLayout local_;
  std::int64_t x_ = 0;
  std::int64_t cos_ = 0;
  std::int64_t sin_ = 0;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const Rope& op, const CpuKernels& kernels) {
  return std::make_unique<CpuRope>(op, kernels.row);
}

}  // namespace conclave
