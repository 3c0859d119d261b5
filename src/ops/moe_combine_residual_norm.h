// moe_combine_residual_norm: the tail of a layer in one pass, for any number of rows.
//
// It means: moe_combine_residual, then rms_norm of the new residual as it was stored. Tokens past `live` are left
// alone.
#pragma once

#include "ops/moe_combine_residual.h"

namespace conclave {

// The RMSNorm that comes next: the next layer's, or the output's.
struct NextNorm {
  Tensor weight;  // f32 | f16 | bf16 [d_model]
  float eps = 1e-6F;
  Tensor out;  // f32 | f16 | bf16 [n_tokens, d_model]
};

struct MoeCombineResidualNorm {
  static constexpr std::string_view kName = "moe_combine_residual_norm";
  static constexpr bool kInPlace = false;

  CombineInput from;
  Tensor residual;  // f32 | f16 | bf16 [n_tokens, d_model]
  NextNorm next;

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    CombineInput::members(op.from, v);
    v.tensor(Role::inout, "residual", op.residual);
    v.tensor(Role::weight, "norm_weight", op.next.weight);
    v.param("eps", op.next.eps);
    v.tensor(Role::out, "normed", op.next.out);
  }
};

void validate(const MoeCombineResidualNorm& op);
void reference(const MoeCombineResidualNorm& op);

}  // namespace conclave
