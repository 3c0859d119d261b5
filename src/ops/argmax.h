// argmax: ids[r] = index of the largest element of row r, in IEEE order: -0 equals +0, ties to the LOWER index, plus
// infinity above every number. A NaN never wins; a row without anything above minus infinity gives -1. Rows past `live`
// are left alone.
#pragma once

#include "ops/members.h"

namespace conclave {

struct Argmax {
  static constexpr std::string_view kName = "argmax";
  static constexpr bool kInPlace = false;

  Tensor x;     // f32 | f16 | bf16 [n, d], d at least 1
  Tensor live;  // i32 [1], optional
  Tensor ids;   // i32 [n]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(in, "live", op.live);
    v.tensor(out, "ids", op.ids);
  }
};

void validate(const Argmax& op);
void reference(const Argmax& op);

}  // namespace conclave
