// moe_combine_residual: moe_combine into f32, added to the residual in place.
//
//   residual[t, d] += f32(sum over slots of weights * rows + shared)
//
// Tokens past `live` are left alone.
#pragma once

#include "ops/moe_combine.h"

namespace conclave {

struct MoeCombineResidual {
  static constexpr std::string_view kName = "moe_combine_residual";
  static constexpr bool kInPlace = false;

  CombineInput from;
  Tensor residual;  // f32 | f16 | bf16 [n_tokens, d_model]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    CombineInput::members(op.from, v);
    v.tensor(Role::inout, "residual", op.residual);
  }
};

void validate(const MoeCombineResidual& op);
void reference(const MoeCombineResidual& op);

}  // namespace conclave
