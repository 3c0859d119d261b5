// The tensors that carry a routing from op to op, and the words for how a model routes.
//
// pair = token * top_k + slot: one token's use of one expert. A packed row is a pair's place after grouping by expert.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/tensor.h"

namespace conclave {

// Which experts serve which token, and with what weight.
struct Routing {
  Tensor experts;    // i32 [n_tokens, top_k]
  Tensor weights;    // f32 [n_tokens, top_k]
  Tensor no_finite;  // i32 [1], optional: goes up by one for every row that had no usable logit
  Tensor counts;     // i32 [n_experts], optional: goes up by one each time the expert is chosen, modulo 2^32
};

// The pairs sorted by expert: compressed sparse rows, on the device.
struct ExpertGroups {
  Tensor offsets;   // i32 [n_experts + 1]: expert e has the packed rows offsets[e] .. offsets[e+1]-1
  Tensor row_pair;  // i32 [n_tokens * top_k]: pair of each packed row; -1 past the end
  Tensor pair_row;  // i32 [n_tokens, top_k]: packed row of each pair; -1 for an invalid id or a dead token
};

enum class Score {
  softmax,              // over all experts
  softmax_after_top_k,  // over the chosen experts
  sigmoid,              // each expert by itself
  sqrt_softplus,        // sqrt(log(1 + exp(x)))
};
enum class GroupScore { max, sum_of_two };  // a group's rank: its best expert's, or the sum of its two best

// How a model routes: data, never an architecture's name.
struct RoutingRule {
  std::int64_t top_k = 1;
  Score score = Score::softmax;
  bool renormalize = false;  // divide the weights by max(their sum, 2^-14)
  float scale = 1.0F;        // multiplies the weights last
  std::int64_t n_groups = 1;
  std::int64_t top_groups = 1;
  GroupScore group_score = GroupScore::max;
};

// What the ids of moe_align_blocks are.
enum class RowIds { packed, pair };

constexpr std::string_view name(Score score) {
  switch (score) {
    case Score::softmax:
      return "softmax";
    case Score::softmax_after_top_k:
      return "softmax_after_top_k";
    case Score::sigmoid:
      return "sigmoid";
    case Score::sqrt_softplus:
      return "sqrt_softplus";
  }
  return "?";
}
constexpr std::string_view name(GroupScore score) {
  return score == GroupScore::max ? "max" : "sum_of_two";
}
constexpr std::string_view name(RowIds ids) {
  return ids == RowIds::packed ? "packed" : "pair";
}

template <class Visitor>
void visit_rule(Visitor& v, const RoutingRule& rule) {
  v.param("top_k", rule.top_k);
  v.param("score", name(rule.score));
  v.param("renormalize", rule.renormalize);
  v.param("scale", rule.scale);
  v.param("n_groups", rule.n_groups);
  v.param("top_groups", rule.top_groups);
  v.param("group_score", name(rule.group_score));
}

}  // namespace conclave
