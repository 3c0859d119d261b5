// moe_combine: each token's expert outputs, weighted and summed in slot order.
//
//   out[t, d] = sum over slots s = 0 .. top_k-1 of weights[t,s] * (row of (t,s))[d], then + shared[t, d]
//
//   packed rows   rows [n_pairs, d_model]; the row of (t,s) is pair_row[t,s]; -1 adds nothing
//   slots         rows [n_tokens, top_k, d_model]; an id experts[t,s] below 0 or not below n_experts adds nothing
//
// A token without a valid slot gets 0 (plus shared). Tokens past `live` are left alone.
#pragma once

#include <vector>

#include "ops/members.h"
#include "ops/routing.h"

namespace conclave {

// What is summed: the same for the three combines.
struct CombineInput {
  Tensor rows;                 // f32 | f16 | bf16 [n_pairs, d_model] packed, or [n_tokens, top_k, d_model] in slots
  Tensor weights;              // f32 [n_tokens, top_k]
  Tensor pair_row;             // i32 [n_tokens, top_k]: packed rows alone
  Tensor experts;              // i32 [n_tokens, top_k]: slots alone
  std::int64_t n_experts = 0;  // slots alone
  Tensor shared;               // f32 | f16 | bf16 [n_tokens, d_model], optional: the shared expert's output
  Tensor live;                 // i32 [1], optional

  template <class Self, class Visitor>
  static void members(Self& input, Visitor& v) {
    using enum Role;
    v.tensor(in, "rows", input.rows);
    v.tensor(in, "weights", input.weights);
    v.tensor(in, "pair_row", input.pair_row);
    v.tensor(in, "experts", input.experts);
    v.param("n_experts", input.n_experts);
    v.tensor(in, "shared", input.shared);
    v.tensor(in, "live", input.live);
  }
};

struct MoeCombine {
  static constexpr std::string_view kName = "moe_combine";
  static constexpr bool kInPlace = false;

  CombineInput from;
  Tensor out;  // f32 | f16 | bf16 [n_tokens, d_model]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    CombineInput::members(op.from, v);
    v.tensor(Role::out, "out", op.out);
  }
};

void validate(const MoeCombine& op);
void reference(const MoeCombine& op);

class Check;
void check_combine(const Check& check, const CombineInput& from, std::int64_t n_tokens, std::int64_t d_model);
// The row of rows that (token, slot) adds, as a tensor of rank 1; not defined() where it adds nothing.
Tensor combined_row(const CombineInput& from, std::int64_t token, std::int64_t slot);
// The sum for one token, [d_model], in f64.
std::vector<double> combined_token(const CombineInput& from, std::int64_t token, std::int64_t d_model);

}  // namespace conclave
