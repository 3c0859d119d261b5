#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/check.h"
#include "ops/host_access.h"

namespace conclave {

void validate(const Rope& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny, kAny});
  check.tensor("out", op.out, kFloat, {op.x.dim(0), op.x.dim(1), op.x.dim(2)});
  check.tensor("positions", op.positions, kI32, {op.x.dim(0)});
  check.optional("live", op.live, kI32, {1});
  check.between("n_rot", op.n_rot, 2, op.x.dim(2));
  if (op.n_rot % 2 != 0) check.refuse("n_rot is {}, expected an even number", op.n_rot);
  check.optional("factors", op.factors, kF32, {op.n_rot / 2});
  check.positive("base", static_cast<double>(op.base));
  check.positive("magnitude", static_cast<double>(op.magnitude));
  if (op.scaling != RopeScaling::none) check.positive("factor", static_cast<double>(op.factor));
  if (op.scaling == RopeScaling::yarn) {
    check.between("original_context", op.original_context, 1, std::int64_t{1} << 40);
    check.positive("beta_fast", static_cast<double>(op.beta_fast));
    check.positive("beta_slow", static_cast<double>(op.beta_slow));
    if (op.base <= 1.0F) check.refuse("base is {}, yarn needs one above 1", op.base);
  }
}

std::vector<double> rope_frequencies(const Rope& op) {
  const double base = static_cast<double>(op.base);
  const double factor = static_cast<double>(op.factor);
  const double n_rot = static_cast<double>(op.n_rot);
  double low = 0;
  double high = 0;
  if (op.scaling == RopeScaling::yarn) {
    const auto pair_of = [&](float rotations) {
      const double periods =
          static_cast<double>(op.original_context) / (2 * std::numbers::pi * static_cast<double>(rotations));
      return n_rot * std::log(periods) / (2 * std::log(base));
    };
    low = std::max(std::floor(pair_of(op.beta_fast)), 0.0);
    high = std::min(std::ceil(pair_of(op.beta_slow)), n_rot - 1);
  }
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < op.n_rot / 2; ++i) {
    const double own = op.factors.defined() ? static_cast<double>(load(op.factors, {i})) : 1.0;
    double f = std::pow(base, -2.0 * static_cast<double>(i) / n_rot) / own;
    if (op.scaling == RopeScaling::linear) f /= factor;
    if (op.scaling == RopeScaling::yarn) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / std::max(high - low, 0.001), 0.0, 1.0);
      f = f * (1 - ramp) + f / factor * ramp;
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

void reference(const Rope& op) {
  const std::vector<double> frequencies = rope_frequencies(op);
  const std::int64_t n_live = live_rows(op.live, op.x.dim(0));
  const std::int64_t half = op.n_rot / 2;
  const double magnitude = static_cast<double>(op.magnitude);
  for (std::int64_t t = 0; t < n_live; ++t) {
    const double position = load_i32(op.positions, {t});
    for (std::int64_t h = 0; h < op.x.dim(1); ++h) {
      const std::vector<float> x = load_row(op.x, {t, h});
      for (std::int64_t i = 0; i < half; ++i) {
        const bool neox = op.style == RopeStyle::neox;
        const std::int64_t first = neox ? i : 2 * i;
        const std::int64_t second = neox ? i + half : 2 * i + 1;
        const double angle = position * frequencies[static_cast<std::size_t>(i)];
        const double a = static_cast<double>(x[static_cast<std::size_t>(first)]);
        const double b = static_cast<double>(x[static_cast<std::size_t>(second)]);
        store(op.out, {t, h, first}, magnitude * (a * std::cos(angle) - b * std::sin(angle)));
        store(op.out, {t, h, second}, magnitude * (a * std::sin(angle) + b * std::cos(angle)));
      }
      for (std::int64_t d = op.n_rot; d < op.x.dim(2); ++d) {
        store(op.out, {t, h, d}, static_cast<double>(x[static_cast<std::size_t>(d)]));
      }
    }
  }
}

}  // namespace conclave
