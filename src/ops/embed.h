// embed: out[t, :] = table[ids[t], :], decoded. An id outside the table gives a row of zeros. Rows past `live` are left
// alone.
#pragma once

#include "ops/members.h"

namespace conclave {

struct Embed {
  static constexpr std::string_view kName = "embed";
  static constexpr bool kInPlace = false;

  Tensor ids;    // i32 [n_tokens]
  Tensor table;  // any weight type [n_vocab, d_model]
  Tensor live;   // i32 [1], optional
  Tensor out;    // f32 | f16 | bf16 [n_tokens, d_model]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "ids", op.ids);
    v.tensor(weight, "table", op.table);
    v.tensor(in, "live", op.live);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const Embed& op);
void reference(const Embed& op);

}  // namespace conclave
