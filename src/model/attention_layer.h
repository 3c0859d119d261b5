// The attention part of a transformer layer, as two recordings: attend() from the normed input to what each head saw,
// and attention_output() from there into the residual and through the norm of the part that follows.
#pragma once

#include "model/config.h"
#include "model/token_batch.h"
#include "ops/kv_view.h"
#include "ops/moe_combine_residual_norm.h"
#include "ops/program.h"

namespace conclave {

// Optional tensors are not defined where the model has none.
struct AttentionWeights {
  Tensor q;             // [n_heads * d_head, d_model]
  Tensor k;             // [n_kv_heads * d_head, d_model]
  Tensor v;             // [n_kv_heads * d_head, d_model]
  Tensor out;           // [d_model, n_heads * d_head]
  Tensor q_bias;        // [n_heads * d_head], optional
  Tensor k_bias;        // [n_kv_heads * d_head], optional
  Tensor v_bias;        // [n_kv_heads * d_head], optional
  Tensor q_norm;        // by AttentionConfig::qk_norm
  Tensor k_norm;        // by AttentionConfig::qk_norm
  Tensor rope_factors;  // f32 [rope.n_dims / 2], optional
};

struct AttentionScratch {
  Tensor normed;    // f32 [n_tokens, d_model]: the input, normed by whoever came before
  Tensor q;         // f32 [n_tokens, n_heads * d_head]
  Tensor k;         // f32 [n_tokens, n_kv_heads * d_head]
  Tensor v;         // f32 [n_tokens, n_kv_heads * d_head]
  Tensor attended;  // f32 [n_tokens, n_heads * d_head]: what attend() leaves
};

void attend(Program& p, const ModelConfig& config, const AttentionWeights& w, const AttentionScratch& s,
            const TokenBatch& batch, Phase phase, const KvView& kv);

// x += attended * out; then the norm of the new x. `projected` [n_tokens, d_model] is scratch.
struct AttentionOutput {
  Tensor attended;   // f32 [n_tokens, n_heads * d_head]
  Tensor live;       // i32 [1]
  Tensor projected;  // f32 [n_tokens, d_model]
  Tensor x;          // f32 [n_tokens, d_model]
  NextNorm next;
};
void attention_output(Program& p, const AttentionWeights& w, const AttentionOutput& s, Phase phase);

}  // namespace conclave
