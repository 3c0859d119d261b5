// moe_expert_ids: a list of pair ids per expert, and the grids for products that are dispatched indirectly.
//
//   ids[e, i]   the i-th pair of expert e, in packed order, for i < tpe[e]; the rest of the row is left alone
//   tpe[e]      how many pairs expert e has
//   max_rows    the largest of them
//   grids       (max(1, ceil(max_rows / nr1)), ceil(d_ff / nr0), n_experts) for gate and up, the same with d_model for
//               down: nr0 output columns and nr1 rows are what one block of the product covers, from the product's plan
//
// row_stride (the length of a row of ids) must be at least n_tokens * top_k: with duplicate ids one expert may get them
// all.
#pragma once

#include "ops/members.h"
#include "ops/routing.h"

namespace conclave {

struct MoeExpertIds {
  static constexpr std::string_view kName = "moe_expert_ids";
  static constexpr bool kInPlace = false;

  Tensor experts;  // i32 [n_tokens, top_k]
  Tensor live;     // i32 [1], optional
  std::int64_t n_experts = 0;
  std::int64_t nr0 = 1;
  std::int64_t nr1 = 1;
  std::int64_t d_ff = 0;
  std::int64_t d_model = 0;
  Tensor ids;           // i32 [n_experts, row_stride]
  Tensor tpe;           // i32 [n_experts]
  Tensor max_rows;      // i32 [1]
  Tensor grid_gate_up;  // u32 [3]
  Tensor grid_down;     // u32 [3]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "experts", op.experts);
    v.tensor(in, "live", op.live);
    v.param("n_experts", op.n_experts);
    v.param("nr0", op.nr0);
    v.param("nr1", op.nr1);
    v.param("d_ff", op.d_ff);
    v.param("d_model", op.d_model);
    v.tensor(out, "ids", op.ids);
    v.tensor(out, "tpe", op.tpe);
    v.tensor(out, "max_rows", op.max_rows);
    v.tensor(out, "grid_gate_up", op.grid_gate_up);
    v.tensor(out, "grid_down", op.grid_down);
  }
};

void validate(const MoeExpertIds& op);
void reference(const MoeExpertIds& op);

}  // namespace conclave
