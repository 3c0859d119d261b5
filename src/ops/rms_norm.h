// rms_norm: out[r, :] = x[r, :] / sqrt(mean over d of x[r, d]^2 + eps) * weight[:]
//
// Per row of [n, d], or per head of [n, n_heads, d_head] with one weight [d_head] for all heads. In place is fine. Rows
// past `live` (of the outermost dimension) are left alone.
#pragma once

#include "ops/members.h"

namespace conclave {

struct RmsNorm {
  static constexpr std::string_view kName = "rms_norm";
  static constexpr bool kInPlace = true;

  Tensor x;       // f32 | f16 | bf16 [n, d] or [n, n_heads, d_head]
  Tensor weight;  // f32 | f16 | bf16 [d] or [d_head]
  Tensor live;    // i32 [1], optional
  float eps = 1e-6F;
  Tensor out;  // f32 | f16 | bf16, x's shape

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(Role::weight, "weight", op.weight);
    v.tensor(in, "live", op.live);
    v.param("eps", op.eps);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const RmsNorm& op);
void reference(const RmsNorm& op);

}  // namespace conclave
