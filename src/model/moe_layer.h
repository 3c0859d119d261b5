// The feed-forward part of a transformer layer: a router picks top_k experts for each token, and their weighted sum is
// added to the residual.
#pragma once

#include "model/config.h"
#include "ops/program.h"

namespace conclave {

struct MoeWeights {
  Tensor router;               // [n_experts, d_model]
  Tensor gate;                 // [n_experts, d_ff, d_model]
  Tensor up;                   // [n_experts, d_ff, d_model]
  Tensor down;                 // [n_experts, d_model, d_ff]
  SharedExpertWeights shared;  // optional
};

// n_pairs = n_tokens * top_k
struct MoeScratch {
  Tensor normed;    // f32 [n_tokens, d_model]: the input, normed by whoever came before
  Tensor live;      // i32 [1]
  Tensor logits;    // f32 [n_tokens, n_experts]
  Routing routing;  // [n_tokens, top_k]: left for who wants to look
  ExpertGroups groups;
  Tensor hidden;         // f32 [n_pairs, d_ff]
  Tensor expert_out;     // f32 [n_pairs, d_model]
  Tensor shared_hidden;  // f32 [n_tokens, d_ff_shared], with a shared expert
  Tensor shared_out;     // f32 [n_tokens, d_model], with a shared expert
};

// x += the experts' answer to s.normed; then the norm of what comes next (a layer, or the head) of the new x.
void moe_layer(Program& p, const ExpertConfig& config, const MoeWeights& w, const MoeScratch& s, Phase phase,
               const Tensor& x, const NextNorm& next);

}  // namespace conclave
