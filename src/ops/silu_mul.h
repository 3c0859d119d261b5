// silu_mul: out = silu(gate) * up, elementwise, silu(x) = x / (1 + exp(-x)).
//
//   apart          gate and up of out's shape
//   concatenated   one tensor [..., n, 2*d_ff], gate columns first; out is [..., n, d_ff]
//   stacked        one tensor [..., 2, n, d_ff], gate plane first; out is [..., n, d_ff]
//
// Any number of leading (batch) dimensions that fits into four. Apart, out may be gate or up themselves. With `live`,
// only apart and concatenated with out [n, d_ff] are taken: rows past it are left alone.
#pragma once

#include "ops/members.h"

namespace conclave {

enum class GateUpLayout { apart, concatenated, stacked };
constexpr std::string_view name(GateUpLayout layout) {
  return layout == GateUpLayout::apart ? "apart" : layout == GateUpLayout::concatenated ? "concatenated" : "stacked";
}

struct SiluMul {
  static constexpr std::string_view kName = "silu_mul";
  static constexpr bool kInPlace = true;

  GateUpLayout layout = GateUpLayout::apart;
  Tensor gate;     // f32 | f16 | bf16, apart alone
  Tensor up;       // f32 | f16 | bf16, apart alone
  Tensor gate_up;  // f32 | f16 | bf16, concatenated or stacked
  Tensor live;     // i32 [1], optional
  Tensor out;      // f32 | f16 | bf16 [..., n, d_ff]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.param("layout", name(op.layout));
    v.tensor(in, "gate", op.gate);
    v.tensor(in, "up", op.up);
    v.tensor(in, "gate_up", op.gate_up);
    v.tensor(in, "live", op.live);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const SiluMul& op);
void reference(const SiluMul& op);

// Views of the two halves, each of out's shape, whatever the layout.
struct GateUpViews {
  Tensor gate;
  Tensor up;
};
GateUpViews gate_up_views(const SiluMul& op);

}  // namespace conclave
