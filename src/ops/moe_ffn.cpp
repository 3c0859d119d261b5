#include "ops/moe_ffn.h"

#include "ops/check.h"

namespace conclave {

MoeFfnSequence sequence_of(const MoeFfn& op) {
  const std::int64_t n_experts = op.logits.dim(1);
  const CombineInput from{.rows = op.expert_out,
                          .weights = op.routing.weights,
                          .pair_row = op.groups.pair_row,
                          .shared = op.shared_out,
                          .live = op.live};
  MoeFfnSequence ops{
      .route = {.logits = op.logits,
                .bias = op.bias,
                .expert_scale = op.expert_scale,
                .live = op.live,
                .rule = op.rule,
                .out = op.routing},
      .group = {.experts = op.routing.experts, .live = op.live, .n_experts = n_experts, .out = op.groups},
      .gate_up = {.x = op.x,
                  .gate = op.gate,
                  .up = op.up,
                  .offsets = op.groups.offsets,
                  .row_pair = op.groups.row_pair,
                  .top_k = op.rule.top_k,
                  .act = op.act,
                  .phase = op.phase,
                  .out = op.hidden},
      .down = {.x = op.hidden, .down = op.down, .offsets = op.groups.offsets, .phase = op.phase, .out = op.expert_out},
      .shared = std::nullopt,
      .combine = MoeCombineResidual{.from = from, .residual = op.residual},
  };
  if (op.shared.gate.defined()) {
    ops.shared = MoeSharedExpert{.x = op.x,
                                 .gate = op.shared.gate,
                                 .up = op.shared.up,
                                 .down = op.shared.down,
                                 .gate_inp = op.shared.gate_inp,
                                 .live = op.live,
                                 .act = op.act,
                                 .phase = op.phase,
                                 .hidden = op.shared_hidden,
                                 .out = op.shared_out};
  }
  if (op.next.weight.defined()) {
    ops.combine = MoeCombineResidualNorm{.from = from, .residual = op.residual, .next = op.next};
  }
  return ops;
}

void validate(const MoeFfn& op) {
  const Check check(op);
  check.tensor("x", op.x, kFloat, {kAny, kAny});
  check.tensor("logits", op.logits, kFloat, {op.x.dim(0), kAny});
  check.tensor("gate", op.gate, kWeight, {op.logits.dim(1), kAny, op.x.dim(1)});
  check.tensor("down", op.down, kWeight, {op.logits.dim(1), op.x.dim(1), op.gate.dim(1)});
  if (!op.shared.gate.defined() &&
      (op.shared.up.defined() || op.shared.down.defined() || op.shared.gate_inp.defined() ||
       op.shared_hidden.defined() || op.shared_out.defined())) {
    check.refuse("parts of a shared expert are given, but shared_gate is missing");
  }
  if (!op.next.weight.defined() && op.next.out.defined()) check.refuse("normed is given, but norm_weight is missing");
  // Expert outputs keep the range of f32 until they are summed: f16 would overflow at 65504.
  constexpr DType kWide[] = {DType::f32, DType::bf16};
  check.tensor("expert_out", op.expert_out, kWide, {kAny, op.x.dim(1)});
  check.optional("shared_out", op.shared_out, kF32, {op.x.dim(0), op.x.dim(1)});
  const MoeFfnSequence ops = sequence_of(op);
  validate(ops.route);
  validate(ops.group);
  validate(ops.gate_up);
  validate(ops.down);
  if (ops.shared) validate(*ops.shared);
  std::visit([](const auto& combine) { validate(combine); }, ops.combine);
}

void reference(const MoeFfn& op) {
  const MoeFfnSequence ops = sequence_of(op);
  reference(ops.route);
  reference(ops.group);
  reference(ops.gate_up);
  reference(ops.down);
  if (ops.shared) reference(*ops.shared);
  std::visit([](const auto& combine) { reference(combine); }, ops.combine);
}

}  // namespace conclave
