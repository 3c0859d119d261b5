#include "model/transformer.h"

namespace conclave {
namespace {

// The rows whose logits are wanted, from the last attention to the head.
void outputs(Program& p, const Transformer& model, const StepSize& size) {
  const ModelConfig& config = model.config;
  const LayerWeights& last = model.weights.layers.back();
  const RowScratch all = model.workspace.rows(size.n_tokens);
  const bool chooses = size.n_tokens > 1;  // a single row is wanted or not, and stays where it is
  const RowScratch s = chooses ? model.workspace.out_rows(size.n_out) : all;
  const TokenBatch batch = model.inputs.batch(size.n_tokens, size.n_out);

  if (chooses) {
    p.embed({.ids = batch.out_rows, .table = all.attended, .live = batch.n_out, .out = s.attended});
    p.embed({.ids = batch.out_rows, .table = all.x, .live = batch.n_out, .out = s.x});
  }
  attention_output(p, last.attention,
                   {.attended = s.attended,
                    .live = batch.n_out,
                    .projected = s.projected,
                    .x = s.x,
                    .next = {.weight = last.ffn_norm, .eps = config.norm_eps, .out = s.ffn_in}},
                   size.phase);
  moe_layer(p, config.experts, last.moe, model.workspace.moe(config.n_layers - 1, s.ffn_in, batch.n_out), size.phase,
            s.x, {.weight = model.weights.output_norm, .eps = config.norm_eps, .out = s.attn_in});
  p.matmul({.x = s.attn_in,
            .w = model.weights.output,
            .live = batch.n_out,
            .phase = size.phase,
            .out = model.workspace.logits(size.n_out)});
  // Few bytes beside the logits, and cheap beside the head: so there is one program, whoever asks for what.
  p.argmax({.x = model.workspace.logits(size.n_out), .live = batch.n_out, .ids = model.workspace.best(size.n_out)});
}

}  // namespace

Program record_step(const Transformer& model, const StepSize& size) {
  const ModelConfig& config = model.config;
  const std::vector<LayerWeights>& layers = model.weights.layers;
  const RowScratch s = model.workspace.rows(size.n_tokens);
  const TokenBatch batch = model.inputs.batch(size.n_tokens, size.n_out);
  const auto norm_into = [&](const Tensor& out, const Tensor& weight) {
    return NextNorm{.weight = weight, .eps = config.norm_eps, .out = out};
  };

  Program p;
  p.embed({.ids = size.follows ? model.workspace.best(size.n_tokens) : batch.ids,
           .table = model.weights.token_embd,
           .live = batch.live,
           .out = s.x});
  p.rms_norm({.x = s.x, .weight = layers[0].attn_norm, .live = batch.live, .eps = config.norm_eps, .out = s.attn_in});
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto layer = static_cast<std::int64_t>(i);
    const LayerWeights& w = layers[i];
    attend(p, config, w.attention, model.workspace.attention(size.n_tokens), batch, size.phase,
           model.kv.layer(layer, size.context));
    if (i + 1 == layers.size()) break;
    attention_output(p, w.attention,
                     {.attended = s.attended,
                      .live = batch.live,
                      .projected = s.projected,
                      .x = s.x,
                      .next = norm_into(s.ffn_in, w.ffn_norm)},
                     size.phase);
    moe_layer(p, config.experts, w.moe, model.workspace.moe(layer, s.ffn_in, batch.live), size.phase, s.x,
              norm_into(s.attn_in, layers[i + 1].attn_norm));
  }
  outputs(p, model, size);
  return p;
}

Program record_top(const Transformer& model, std::int64_t n_out) {
  const TopLogits top = model.workspace.top(n_out);
  Program p;
  p.top_k({.x = model.workspace.logits(n_out),
           .live = model.inputs.batch(1, n_out).n_out,
           .ids = top.ids,
           .values = top.values});
  return p;
}

Program record_outputs(const Transformer& model, const StepSize& size) {
  Program p;
  outputs(p, model, size);
  return p;
}

}  // namespace conclave
