// moe_gate_up: two expert products and the gated activation in one pass, into packed rows.
//
//   g = sum over k of x[token of r, k] * gate[expert of r, n, k], rounded to f32; u likewise with up
//   out[r, n] = act(g) * u
//
// It means: moe_matmul twice into f32, act(gate) * up, in packed order. Rows past the last expert's are left alone.
#pragma once

#include "ops/activation.h"
#include "ops/members.h"
#include "ops/phase.h"
#include "ops/routing.h"

namespace conclave {

struct MoeGateUp {
  static constexpr std::string_view kName = "moe_gate_up";
  static constexpr bool kInPlace = false;

  Tensor x;         // f32 | f16 | bf16 [n_tokens, d_model]
  Tensor gate;      // any weight type [n_experts, d_ff, d_model]
  Tensor up;        // any weight type [n_experts, d_ff, d_model]
  Tensor offsets;   // i32 [n_experts + 1], of moe_group
  Tensor row_pair;  // i32 [n_tokens * top_k], of moe_group
  std::int64_t top_k = 1;
  Activation act = Activation::silu;
  Phase phase = Phase::decode;
  Tensor out;  // f32 | f16 | bf16 [n_tokens * top_k, d_ff], packed rows

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(weight, "gate", op.gate);
    v.tensor(weight, "up", op.up);
    v.tensor(in, "offsets", op.offsets);
    v.tensor(in, "row_pair", op.row_pair);
    v.param("top_k", op.top_k);
    v.param("act", name(op.act));
    v.param("phase", name(op.phase));
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const MoeGateUp& op);
void reference(const MoeGateUp& op);

}  // namespace conclave
