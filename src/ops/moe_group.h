// moe_group: a routing sorted by expert, stably: an expert's rows stand in token order, then slot order.
//
//   offsets[e]      number of valid pairs whose expert is below e; offsets[n_experts] = all valid pairs
//   row_pair[r]     pair at packed row r; -1 past the end
//   pair_row[t,s]   packed row of the pair; -1 for an id below 0 or not below n_experts, and for tokens past `live`
//
// A duplicate expert within a token counts twice. No atomic decides an order.
#pragma once

#include <vector>

#include "ops/members.h"
#include "ops/routing.h"

namespace conclave {

struct MoeGroup {
  static constexpr std::string_view kName = "moe_group";
  static constexpr bool kInPlace = false;

  Tensor experts;  // i32 [n_tokens, top_k]
  Tensor live;     // i32 [1], optional: tokens past this count are dead
  std::int64_t n_experts = 0;
  ExpertGroups out;

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "experts", op.experts);
    v.tensor(in, "live", op.live);
    v.param("n_experts", op.n_experts);
    v.tensor(Role::out, "offsets", op.out.offsets);
    v.tensor(Role::out, "row_pair", op.out.row_pair);
    v.tensor(Role::out, "pair_row", op.out.pair_row);
  }
};

void validate(const MoeGroup& op);
void reference(const MoeGroup& op);

// The pairs of each expert, in packed order: what every grouping op is a view of.
std::vector<std::vector<std::int32_t>> pairs_of_experts(const Tensor& experts, const Tensor& live,
                                                        std::int64_t n_experts);

// experts [n_tokens, top_k], live and n_experts as every grouping op takes them. The caller includes ops/check.h.
class Check;
void check_grouping(const Check& check, const Tensor& experts, const Tensor& live, std::int64_t n_experts);

}  // namespace conclave
