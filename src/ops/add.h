// add: out = a + b, elementwise; b may be one row [d] that is added to every row. In place is fine. Rows past `live`
// (of the outermost dimension) are left alone.
#pragma once

#include "ops/members.h"

namespace conclave {

struct Add {
  static constexpr std::string_view kName = "add";
  static constexpr bool kInPlace = true;

  Tensor a;     // f32 | f16 | bf16 [n, d]
  Tensor b;     // f32 | f16 | bf16 [n, d] or [d]
  Tensor live;  // i32 [1], optional
  Tensor out;   // f32 | f16 | bf16 [n, d]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "a", op.a);
    v.tensor(in, "b", op.b);
    v.tensor(in, "live", op.live);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const Add& op);
void reference(const Add& op);

}  // namespace conclave
