// moe_shared_expert: the expert that serves every token, with its optional sigmoid gate.
//
//   hidden = act(x gate^T) * (x up^T), each product rounded to f32, stored as hidden's type
//   y = hidden down^T, rounded to f32
//   out[t, :] = y[t, :] * sigmoid(sum over d of x[t, d] * gate_inp[d])      (times 1 without gate_inp)
//
// Tokens past `live` are left alone.
#pragma once

#include "ops/activation.h"
#include "ops/members.h"
#include "ops/phase.h"

namespace conclave {

struct MoeSharedExpert {
  static constexpr std::string_view kName = "moe_shared_expert";
  static constexpr bool kInPlace = false;

  Tensor x;         // f32 | f16 | bf16 [n_tokens, d_model]
  Tensor gate;      // any weight type [d_shared, d_model]
  Tensor up;        // any weight type [d_shared, d_model]
  Tensor down;      // any weight type [d_model, d_shared]
  Tensor gate_inp;  // f32 | f16 | bf16 [d_model], optional
  Tensor live;      // i32 [1], optional
  Activation act = Activation::silu;
  Phase phase = Phase::decode;
  Tensor hidden;  // scratch, f32 | f16 | bf16 [n_tokens, d_shared]
  Tensor out;     // f32 | f16 | bf16 [n_tokens, d_model]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(weight, "shared_gate", op.gate);
    v.tensor(weight, "shared_up", op.up);
    v.tensor(weight, "shared_down", op.down);
    v.tensor(weight, "shared_gate_inp", op.gate_inp);
    v.tensor(in, "live", op.live);
    v.param("act", name(op.act));
    v.param("phase", name(op.phase));
    v.tensor(scratch, "shared_hidden", op.hidden);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const MoeSharedExpert& op);
void reference(const MoeSharedExpert& op);

}  // namespace conclave
