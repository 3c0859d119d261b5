// moe_pairs_by_token: the other view of moe_group, for programs with products of their own that gather by token.
//
//   packed_row[t,s]   packed row of the pair, -1 for an invalid id or a token past `live` (moe_group's pair_row)
//   row_token[r]      token of packed row r; -1 past the end
//   offsets[e]        as in moe_group
#pragma once

#include "ops/members.h"
#include "ops/routing.h"

namespace conclave {

struct MoePairsByToken {
  static constexpr std::string_view kName = "moe_pairs_by_token";
  static constexpr bool kInPlace = false;

  Tensor experts;  // i32 [n_tokens, top_k]
  Tensor live;     // i32 [1], optional
  std::int64_t n_experts = 0;
  Tensor packed_row;  // i32 [n_tokens, top_k]
  Tensor row_token;   // i32 [n_tokens * top_k]
  Tensor offsets;     // i32 [n_experts + 1]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "experts", op.experts);
    v.tensor(in, "live", op.live);
    v.param("n_experts", op.n_experts);
    v.tensor(out, "packed_row", op.packed_row);
    v.tensor(out, "row_token", op.row_token);
    v.tensor(out, "offsets", op.offsets);
  }
};

void validate(const MoePairsByToken& op);
void reference(const MoePairsByToken& op);

}  // namespace conclave
