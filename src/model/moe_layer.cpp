#include "model/moe_layer.h"

namespace conclave {

void moe_layer(Program& p, const ExpertConfig& config, const MoeWeights& w, const MoeScratch& s, Phase phase,
               const Tensor& x, const NextNorm& next) {
  // Canonical order: equal inputs choose equal experts on every backend.
  p.matmul({.x = s.normed, .w = w.router, .live = s.live, .order = Order::canonical, .out = s.logits});
  p.moe_ffn({.x = s.normed,
             .logits = s.logits,
             .live = s.live,
             .rule = config.rule,
             .act = config.act,
             .phase = phase,
             .gate = w.gate,
             .up = w.up,
             .down = w.down,
             .shared = w.shared,
             .routing = s.routing,
             .groups = s.groups,
             .hidden = s.hidden,
             .expert_out = s.expert_out,
             .shared_hidden = s.shared_hidden,
             .shared_out = s.shared_out,
             .residual = x,
             .next = next});
}

}  // namespace conclave
