// moe_down: the down product over packed rows, out[r, n] = sum over k of x[r, k] * down[expert of r, n, k].
//
// Rows past the last expert's are left alone.
#pragma once

#include "ops/members.h"
#include "ops/phase.h"
#include "ops/routing.h"

namespace conclave {

struct MoeDown {
  static constexpr std::string_view kName = "moe_down";
  static constexpr bool kInPlace = false;

  Tensor x;        // f32 | f16 | bf16 [n_pairs, d_ff], packed rows
  Tensor down;     // any weight type [n_experts, d_model, d_ff]
  Tensor offsets;  // i32 [n_experts + 1], of moe_group
  Phase phase = Phase::decode;
  Tensor out;  // f32 | f16 | bf16 [n_pairs, d_model], packed rows

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(weight, "down", op.down);
    v.tensor(in, "offsets", op.offsets);
    v.param("phase", name(op.phase));
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const MoeDown& op);
void reference(const MoeDown& op);

}  // namespace conclave
