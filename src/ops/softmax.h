// softmax: out[r, :] = exp(scale * x[r, :] - max) / sum, max over the row of scale * x.
//
// IEEE as it falls: a NaN or plus infinity in a row, or a row of nothing but minus infinity, makes the whole row NaN.
// Minus infinity beside finite values gets 0. In place is fine. Rows past `live` are left alone.
#pragma once

#include "ops/members.h"

namespace conclave {

struct Softmax {
  static constexpr std::string_view kName = "softmax";
  static constexpr bool kInPlace = true;

  Tensor x;     // f32 | f16 | bf16 [n, d], d at least 1
  Tensor live;  // i32 [1], optional
  float scale = 1.0F;
  Tensor out;  // f32 | f16 | bf16 [n, d]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(in, "live", op.live);
    v.param("scale", op.scale);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const Softmax& op);
void reference(const Softmax& op);

}  // namespace conclave
