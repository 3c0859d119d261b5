// Which tensor of the file plays which part. Views into a gguf::File, which must outlive them; data is not touched
// here.
#pragma once

#include <vector>

#include "gguf/file.h"

namespace conclave {

using TensorRef = const gguf::TensorInfo*;  // null where the family has no such tensor, or the file leaves it out

// Norms, biases, the router and the shared expert's gate are f32, f16 or bf16; the rest may be any block format too.
// A dimension of 1 in front of a shape may be missing or extra in the file.
struct LayerTensors {
  TensorRef attn_norm = nullptr;  // [d_model]
  TensorRef attn_q = nullptr;     // [n_heads * d_head, d_model]
  TensorRef attn_k = nullptr;     // [n_kv_heads * d_head, d_model]
  TensorRef attn_v = nullptr;     // [n_kv_heads * d_head, d_model]
  TensorRef attn_out = nullptr;   // [d_model, n_heads * d_head]
  TensorRef q_bias = nullptr;     // [n_heads * d_head]
  TensorRef k_bias = nullptr;     // [n_kv_heads * d_head]
  TensorRef v_bias = nullptr;     // [n_kv_heads * d_head]
  TensorRef q_norm = nullptr;     // [d_head] or [n_heads * d_head], by AttentionConfig::qk_norm
  TensorRef k_norm = nullptr;     // [d_head] or [n_kv_heads * d_head]

  TensorRef ffn_norm = nullptr;  // [d_model]
  TensorRef router = nullptr;    // [n_experts, d_model]
  TensorRef gate = nullptr;      // [n_experts, d_ff, d_model]
  TensorRef up = nullptr;        // [n_experts, d_ff, d_model]
  TensorRef down = nullptr;      // [n_experts, d_model, d_ff]

  TensorRef shared_router = nullptr;  // [d_model]: the sigmoid of its product with x scales the shared expert
  TensorRef shared_gate = nullptr;    // [d_ff_shared, d_model]
  TensorRef shared_up = nullptr;      // [d_ff_shared, d_model]
  TensorRef shared_down = nullptr;    // [d_model, d_ff_shared]
};

struct ModelTensors {
  TensorRef token_embd = nullptr;    // [n_vocab, d_model]
  TensorRef output_norm = nullptr;   // [d_model]
  TensorRef output = nullptr;        // [n_vocab, d_model]; the token embedding itself where the file ties them
  TensorRef rope_factors = nullptr;  // [rope.n_dims / 2]: divides each pair's frequency
  std::vector<LayerTensors> layers;  // [n_layers]

  bool tied() const { return output == token_embd; }
};

}  // namespace conclave
