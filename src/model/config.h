// The numbers that make a model, as its file gives them. Differences between families are values here, never names:
// nothing past this header asks which architecture it runs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ops/activation.h"
#include "ops/rope.h"
#include "ops/routing.h"

namespace conclave {

// RMSNorm of queries and keys before the rotation.
enum class QkNorm : std::uint8_t {
  none,
  per_head,    // weights [d_head], each head for itself
  full_width,  // weights [n_heads * d_head] and [n_kv_heads * d_head], all heads together
};

constexpr std::string_view name(QkNorm norm) {
  switch (norm) {
    case QkNorm::none:
      return "none";
    case QkNorm::per_head:
      return "per_head";
    case QkNorm::full_width:
      return "full_width";
  }
  return "?";
}

struct AttentionConfig {
  std::int64_t n_heads = 0;     // query heads
  std::int64_t n_kv_heads = 0;  // key and value heads; divides n_heads
  std::int64_t d_head = 0;      // elements of one head, the same for queries, keys and values
  QkNorm qk_norm = QkNorm::none;
  bool qkv_bias = false;  // q, k and v each have a bias
};

struct RopeConfig {
  RopeStyle style = RopeStyle::interleaved;
  std::int64_t n_dims = 0;  // leading elements of a head that turn; even, at most d_head
  float base = 10000.0F;    // theta of pair i at position p: p * base^(-2i / n_dims)
  RopeScaling scaling = RopeScaling::none;
  float factor = 1.0F;                // positions are divided by this (yarn: those of slow pairs)
  std::int64_t original_context = 0;  // tokens of context before scaling
  float attn_factor = 1.0F;           // multiplies what is rotated
  // yarn only
  float yarn_attn_factor = 1.0F;  // multiplies yarn's own 1 + 0.1 ln(factor)
  float beta_fast = 32.0F;        // pairs with more turns than this over the original context are not scaled
  float beta_slow = 1.0F;         // pairs with fewer turns than this are scaled in full
};

struct ExpertConfig {
  std::int64_t n_experts = 0;    // routed experts of a layer
  std::int64_t d_ff = 0;         // hidden width of a routed expert
  std::int64_t d_ff_shared = 0;  // hidden width of the shared expert, behind its sigmoid gate; 0 where there is none
  RoutingRule rule;              // which top_k of them serve a token, and with what weights
  Activation act = Activation::silu;
};

struct ModelConfig {
  std::string architecture;    // general.architecture; for messages only
  std::string name;            // general.name; may be empty, may hold any bytes
  std::int64_t n_layers = 0;   // transformer blocks, each with attention and experts
  std::int64_t d_model = 0;    // width of the residual stream
  std::int64_t n_vocab = 0;    // rows of the embedding and of the head
  std::int64_t n_context = 0;  // tokens the model was trained to see
  float norm_eps = 0.0F;       // added to the mean square in every RMSNorm
  AttentionConfig attention;
  RopeConfig rope;
  ExpertConfig experts;
};

}  // namespace conclave
