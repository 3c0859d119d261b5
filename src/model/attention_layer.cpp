#include "model/attention_layer.h"

#include <cmath>

#include "model/views.h"

namespace conclave {
namespace {

void norm_heads(Program& p, const ModelConfig& config, const Tensor& weight, const Tensor& live, const Tensor& x) {
  const QkNorm kind = config.attention.qk_norm;
  if (kind == QkNorm::none) return;
  const Tensor rows = kind == QkNorm::per_head ? as_heads(x, config.attention.d_head) : x;
  p.rms_norm({.x = rows, .weight = weight, .live = live, .eps = config.norm_eps, .out = rows});
}

// What cos and sin are multiplied by. YaRN sharpens attention as it stretches positions.
float rope_magnitude(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::yarn) return rope.attn_factor;
  return rope.attn_factor * rope.yarn_attn_factor * (1.0F + 0.1F * std::log(rope.factor));
}

void rotate(Program& p, const ModelConfig& config, const Tensor& factors, const TokenBatch& batch, const Tensor& x) {
  const RopeConfig& rope = config.rope;
  const Tensor heads = as_heads(x, config.attention.d_head);
  p.rope({.x = heads,
          .positions = batch.positions,
          .factors = factors,
          .live = batch.live,
          .n_rot = rope.n_dims,
          .style = rope.style,
          .scaling = rope.scaling,
          .base = rope.base,
          .factor = rope.factor,
          .original_context = rope.original_context,
          .beta_fast = rope.beta_fast,
          .beta_slow = rope.beta_slow,
          .magnitude = rope_magnitude(rope),
          .out = heads});
}

}  // namespace

void attend(Program& p, const ModelConfig& config, const AttentionWeights& w, const AttentionScratch& s,
            const TokenBatch& batch, Phase phase, const KvView& kv) {
  const std::int64_t d_head = config.attention.d_head;
  p.matmul({.x = s.normed, .w = w.q, .bias = w.q_bias, .live = batch.live, .phase = phase, .out = s.q});
  p.matmul({.x = s.normed, .w = w.k, .bias = w.k_bias, .live = batch.live, .phase = phase, .out = s.k});
  p.matmul({.x = s.normed, .w = w.v, .bias = w.v_bias, .live = batch.live, .phase = phase, .out = s.v});
  norm_heads(p, config, w.q_norm, batch.live, s.q);
  norm_heads(p, config, w.k_norm, batch.live, s.k);
  rotate(p, config, w.rope_factors, batch, s.q);
  rotate(p, config, w.rope_factors, batch, s.k);
  p.kv_write({.k = as_heads(s.k, d_head),
              .v = as_heads(s.v, d_head),
              .seqs = batch.seqs,
              .positions = batch.positions,
              .live = batch.live,
              .kv = kv});
  p.attention({.q = as_heads(s.q, d_head),
               .kv = kv,
               .lengths = batch.lengths,
               .seqs = batch.seqs,
               .positions = batch.positions,
               .live = batch.live,
               .scale = 1.0F / std::sqrt(static_cast<float>(d_head)),
               .phase = phase,
               .out = as_heads(s.attended, d_head)});
}

void attention_output(Program& p, const AttentionWeights& w, const AttentionOutput& s, Phase phase) {
  p.matmul({.x = s.attended, .w = w.out, .live = s.live, .phase = phase, .out = s.projected});
  p.add({.a = s.x, .b = s.projected, .live = s.live, .out = s.x});
  p.rms_norm({.x = s.x, .weight = s.next.weight, .live = s.live, .eps = s.next.eps, .out = s.next.out});
}

}  // namespace conclave
