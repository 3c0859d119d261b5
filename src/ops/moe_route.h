// moe_route: which experts serve each token, and with what weight.
//
// Per row, with l = logits as f32 (exact), NaN taken as minus infinity and plus infinity as the largest finite float:
//
//   score[e]  softmax: exp(l[e] - max l) / their sum over all experts (the canonical sum of scoring.h, then a division)
//             softmax_after_top_k: l[e] itself
//             sigmoid: 1 / (1 + exp(-l[e]))      sqrt_softplus: sqrt(log(1 + exp(l[e])))
//   rank[e]   l[e] where the order of the logits decides alone: softmax and softmax_after_top_k, without a bias and
//             without groups ranked by a sum. Else score[e] + bias[e], by the arithmetic of scoring.h: the same bits
//             everywhere. Minus infinity, whatever the bias, where l[e] is. NaN and plus infinity in a rank, or in a sum
//             of ranks, count as they do in a logit.
//   groups    n_groups equal runs of experts. A group ranks by its best rank, or by the sum of its two best (an expert
//             of rank minus infinity adds nothing; a group of none else ranks as minus infinity). The top_groups best
//             stay, experts of the others are out.
//   chosen    the top_k best ranks of the experts that are left. Larger first, -0 equals +0, ties to the LOWER index
//             (experts and groups alike). Nothing depends on n_experts being small or a multiple of anything.
//   weights   softmax: score over all experts, in or out of the groups; softmax_after_top_k: softmax over the chosen;
//             sigmoid, sqrt_softplus: the score without bias. 0 where l[e] is minus infinity.
//             renormalize: divided by max(their sum, 2^-14). Then times scale, then times expert_scale[e].
//
// A row with no usable logit (all NaN or minus infinity): experts 0 .. top_k-1, weights 1/top_k whatever renormalize
// says, then scale and expert_scale; no_finite goes up by one (it stays at 2^31-1). Rows past `live` are left alone.
//
// counts[e] goes up by one for each slot that expert e gets, also in such a row. It adds up over runs, modulo 2^32: who
// reads it before an expert was chosen 2^32 times more takes the difference to what it was.
#pragma once

#include "ops/members.h"
#include "ops/routing.h"

namespace conclave {

struct MoeRoute {
  static constexpr std::string_view kName = "moe_route";
  static constexpr bool kInPlace = false;

  Tensor logits;        // f32 | f16 | bf16 [n_tokens, n_experts]
  Tensor bias;          // f32 [n_experts], optional: added to the score for choosing, not to the weight
  Tensor expert_scale;  // f32 [n_experts], optional
  Tensor live;          // i32 [1], optional: tokens past this count are dead
  RoutingRule rule;
  Routing out;  // [n_tokens, top_k]

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v);
};

void validate(const MoeRoute& op);
void reference(const MoeRoute& op);

// The checks that every op with a routing rule shares.
class Check;
void check_rule(const Check& check, const RoutingRule& rule, std::int64_t n_experts);

template <class Self, class Visitor>
void MoeRoute::members(Self& op, Visitor&& v) {
  using enum Role;
  v.tensor(in, "logits", op.logits);
  v.tensor(weight, "bias", op.bias);
  v.tensor(weight, "expert_scale", op.expert_scale);
  v.tensor(in, "live", op.live);
  visit_rule(v, op.rule);
  v.tensor(out, "experts", op.out.experts);
  v.tensor(out, "weights", op.out.weights);
  v.tensor(inout, "no_finite", op.out.no_finite);
  v.tensor(inout, "counts", op.out.counts);
}

}  // namespace conclave
