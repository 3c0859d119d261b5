// moe_ffn: the whole feed-forward part of an MoE layer, from router logits to the next norm: the unit that backends
// fuse.
//
// It means the sequence that sequence_of() returns: route, group, gate+up, down, the shared expert where there is one,
// and the combine into the residual, with the next norm where there is one. It is tested against that sequence.
//
// After the run `routing`, `residual` and `next.out` hold what the sequence gives; the scratch members hold anything.
#pragma once

#include <optional>
#include <variant>

#include "ops/moe_combine_residual_norm.h"
#include "ops/moe_down.h"
#include "ops/moe_gate_up.h"
#include "ops/moe_group.h"
#include "ops/moe_route.h"
#include "ops/moe_shared_expert.h"

namespace conclave {

struct SharedExpertWeights {
  Tensor gate;      // any weight type [d_shared, d_model]
  Tensor up;        // any weight type [d_shared, d_model]
  Tensor down;      // any weight type [d_model, d_shared]
  Tensor gate_inp;  // f32 | f16 | bf16 [d_model], optional
};

struct MoeFfn {
  static constexpr std::string_view kName = "moe_ffn";
  static constexpr bool kInPlace = false;

  Tensor x;             // f32 | f16 | bf16 [n_tokens, d_model]: the normed input
  Tensor logits;        // f32 | f16 | bf16 [n_tokens, n_experts]: the router's
  Tensor bias;          // f32 [n_experts], optional
  Tensor expert_scale;  // f32 [n_experts], optional
  Tensor live;          // i32 [1], optional
  RoutingRule rule;
  Activation act = Activation::silu;
  Phase phase = Phase::decode;
  Tensor gate;                 // any weight type [n_experts, d_ff, d_model]
  Tensor up;                   // any weight type [n_experts, d_ff, d_model]
  Tensor down;                 // any weight type [n_experts, d_model, d_ff]
  SharedExpertWeights shared;  // optional

  Routing routing;       // written
  ExpertGroups groups;   // scratch
  Tensor hidden;         // scratch, f32 | f16 | bf16 [n_pairs, d_ff]
  Tensor expert_out;     // scratch, f32 | bf16 [n_pairs, d_model]
  Tensor shared_hidden;  // scratch, f32 | f16 | bf16 [n_tokens, d_shared], with a shared expert
  Tensor shared_out;     // scratch, f32 [n_tokens, d_model], with a shared expert

  Tensor residual;  // f32 | f16 | bf16 [n_tokens, d_model], added to in place
  NextNorm next;    // optional

  template <class Self, class Visitor>
  static void members(Self& op, Visitor&& v) {
    using enum Role;
    v.tensor(in, "x", op.x);
    v.tensor(in, "logits", op.logits);
    v.tensor(weight, "bias", op.bias);
    v.tensor(weight, "expert_scale", op.expert_scale);
    v.tensor(in, "live", op.live);
    visit_rule(v, op.rule);
    v.param("act", name(op.act));
    v.param("phase", name(op.phase));
    v.tensor(weight, "gate", op.gate);
    v.tensor(weight, "up", op.up);
    v.tensor(weight, "down", op.down);
    v.tensor(weight, "shared_gate", op.shared.gate);
    v.tensor(weight, "shared_up", op.shared.up);
    v.tensor(weight, "shared_down", op.shared.down);
    v.tensor(weight, "shared_gate_inp", op.shared.gate_inp);
    v.tensor(out, "experts", op.routing.experts);
    v.tensor(out, "weights", op.routing.weights);
    v.tensor(inout, "no_finite", op.routing.no_finite);
    v.tensor(inout, "counts", op.routing.counts);
    v.tensor(scratch, "offsets", op.groups.offsets);
    v.tensor(scratch, "row_pair", op.groups.row_pair);
    v.tensor(scratch, "pair_row", op.groups.pair_row);
    v.tensor(scratch, "hidden", op.hidden);
    v.tensor(scratch, "expert_out", op.expert_out);
    v.tensor(scratch, "shared_hidden", op.shared_hidden);
    v.tensor(scratch, "shared_out", op.shared_out);
    v.tensor(inout, "residual", op.residual);
    v.tensor(weight, "norm_weight", op.next.weight);
    v.param("eps", op.next.eps);
    v.tensor(out, "normed", op.next.out);
  }
};

// The ops that a moe_ffn stands for, in order.
struct MoeFfnSequence {
  MoeRoute route;
  MoeGroup group;
  MoeGateUp gate_up;
  MoeDown down;
  std::optional<MoeSharedExpert> shared;
  std::variant<MoeCombineResidual, MoeCombineResidualNorm> combine;
};
MoeFfnSequence sequence_of(const MoeFfn& op);

void validate(const MoeFfn& op);
void reference(const MoeFfn& op);

}  // namespace conclave
