// rope: rotary position embedding of the first n_rot elements of every head; the rest is passed through.
//
//   pair i (0 .. n_rot/2-1) is (x[2i], x[2i+1]) for interleaved, (x[i], x[i + n_rot/2]) for NeoX
//   (a, b) becomes m * (a cos - b sin, a sin + b cos) of the angle positions[t] * f(i)
//
//   e(i) = base^(-2i/n_rot) / factors[i]           (factors: a model's own table: Llama 3, LongRoPE; 1 without one)
//   none:    f = e                    linear:  f = e / factor
//   yarn:    f = e * (1 - r) + e / factor * r, r = clamp((i - low) / max(high - low, 0.001), 0, 1), where
//            c(rotations) = n_rot * ln(original_context / (2 pi rotations)) / (2 ln base),
//            low = max(floor(c(beta_fast)), 0), high = min(ceil(c(beta_slow)), n_rot - 1)
//   m = magnitude, a parameter: 1, or what the model's scaling asks for (YaRN: 0.1 ln(factor) + 1)
//
// In place is fine. Rows past `live` are left alone.
#pragma once

#include <vector>

#include "ops/members.h"

namespace conclave {

enum class RopeStyle { neox, interleaved };
enum class RopeScaling { none, linear, yarn };

constexpr std::string_view name(RopeStyle style) {
  return style == RopeStyle::neox ? "neox" : "interleaved";
}
constexpr std::string_view name(RopeScaling scaling) {
  return scaling == RopeScaling::none ? "none" : scaling == RopeScaling::linear ? "linear" : "yarn";
}

struct Rope {
  static constexpr std::string_view kName = "rope";
  static constexpr bool kInPlace = true;

  Tensor x;                // f32 | f16 | bf16 [n_tokens, n_heads, d_head]
  Tensor positions;        // i32 [n_tokens]
  Tensor factors;          // f32 [n_rot / 2], optional
  Tensor live;             // i32 [1], optional
  std::int64_t n_rot = 0;  // even, at most d_head
  RopeStyle style = RopeStyle::neox;
  RopeScaling scaling = RopeScaling::none;
  float base = 10000.0F;
  float factor = 1.0F;
  std::int64_t original_context = 0;  // yarn
  float beta_fast = 32.0F;            // yarn
  float beta_slow = 1.0F;             // yarn
  float magnitude = 1.0F;
  Tensor out;  // f32 | f16 | bf16, x's shape

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(in, "positions", op.positions);
    v.tensor(weight, "factors", op.factors);
    v.tensor(in, "live", op.live);
    v.param("n_rot", op.n_rot);
    v.param("style", name(op.style));
    v.param("scaling", name(op.scaling));
    v.param("base", op.base);
    v.param("factor", op.factor);
    v.param("original_context", op.original_context);
    v.param("beta_fast", op.beta_fast);
    v.param("beta_slow", op.beta_slow);
    v.param("magnitude", op.magnitude);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const Rope& op);
void reference(const Rope& op);

// f(i) for every pair.
std::vector<double> rope_frequencies(const Rope& op);

}  // namespace conclave
