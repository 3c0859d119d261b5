// Layer: an MoE layer of some size for tests of backends, and any part of its tokens as a batch of its own.
#pragma once

#include <optional>

#include "support/case.h"

namespace conclave::test {

struct Layer {
  static constexpr std::int64_t kExperts = 8;
  static constexpr std::int64_t kTopK = 3;
  std::int64_t d_model = 512;
  std::int64_t d_ff = 256;
  DType gate = DType::q4_k;
  std::optional<DType> up = {};  // gate's, unless given
  DType down = DType::q6_k;
  DType x = DType::f32;
  DType hidden = DType::f32;
  DType expert_out = DType::f32;

  Case make(std::int64_t n_tokens) const {
    CaseBuilder b(7, Layout::dense);
    const std::int64_t pairs = n_tokens * kTopK;
    MoeFfn op{.rule = {.top_k = kTopK, .renormalize = true}};
    op.gate = b.weights(gate, {kExperts, d_ff, d_model});
    op.up = b.weights(up.value_or(gate), {kExperts, d_ff, d_model});
    op.down = b.weights(down, {kExperts, d_model, d_ff});
    op.next.weight = b.values(DType::f32, {d_model});
    op.x = b.values(x, {n_tokens, d_model});
    op.logits = b.values(DType::f32, {n_tokens, kExperts});
    op.residual = b.values(DType::f32, {n_tokens, d_model});
    op.routing = {.experts = b.output(DType::i32, {n_tokens, kTopK}),
                  .weights = b.output(DType::f32, {n_tokens, kTopK})};
    op.groups = {.offsets = b.output(DType::i32, {kExperts + 1}),
                 .row_pair = b.output(DType::i32, {pairs}),
                 .pair_row = b.output(DType::i32, {n_tokens, kTopK})};
    op.hidden = b.output(hidden, {pairs, d_ff});
    op.expert_out = b.output(expert_out, {pairs, d_model});
    op.next.out = b.output(DType::f32, {n_tokens, d_model});
    return b.finish("layer", op);
  }
};

// The tokens first .. first+count-1 of a layer's batch, as a batch.
inline MoeFfn part_of(const MoeFfn& all, std::int64_t first, std::int64_t count) {
  MoeFfn op = all;
  for (Tensor* t :
       {&op.x, &op.logits, &op.residual, &op.routing.experts, &op.routing.weights, &op.groups.pair_row, &op.next.out}) {
    *t = slice(*t, 0, first, count);
  }
  for (Tensor* t : {&op.groups.row_pair, &op.hidden, &op.expert_out}) *t = slice(*t, 0, 0, count * Layer::kTopK);
  return op;
}

}  // namespace conclave::test
