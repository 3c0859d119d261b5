// A family is a description of a kind of model as data: which tensors it has under which names and with which shapes,
// and what holds where its file does not say. To add one, add a row to the table in families.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"
#include "model/tensors.h"

namespace conclave {

// A dimension by its name; the number comes from a ModelConfig.
enum class Dim : std::uint8_t {
  none,
  d_model,
  n_vocab,
  q_width,   // n_heads * d_head
  kv_width,  // n_kv_heads * d_head
  d_head,
  n_experts,
  d_ff,
  d_ff_shared,
  rope_pairs,  // rope.n_dims / 2
};
std::string_view dim_name(Dim dim);
std::int64_t dim_value(Dim dim, const ModelConfig& config);

using SymbolicShape = std::array<Dim, 3>;  // outermost first, `none` after the last

enum class Storage : std::uint8_t { floats, floats_or_blocks };
enum class Presence : std::uint8_t {
  required,
  optional,
  with_qkv_bias,  // all layers have it, or none does: ModelConfig::attention.qkv_bias
};

template <class Owner>
struct TensorSpec {
  std::string_view name;   // in the file; of a layer's tensor, what follows "blk.N."
  TensorRef Owner::*slot;  // where the reference goes
  SymbolicShape shape;
  Storage storage = Storage::floats_or_blocks;
  Presence presence = Presence::required;
};
using ModelTensorSpec = TensorSpec<ModelTensors>;
using LayerTensorSpec = TensorSpec<LayerTensors>;

// The expert width where expert_feed_forward_length is absent.
enum class ExpertWidth : std::uint8_t {
  feed_forward,            // feed_forward_length is the width of one expert
  feed_forward_per_top_k,  // feed_forward_length is the width of all the experts a token uses together
};

struct Family {
  std::string_view architecture;  // general.architecture, and the prefix of its keys
  std::span<const ModelTensorSpec> model_tensors;
  std::span<const LayerTensorSpec> common_layer_tensors;
  std::span<const LayerTensorSpec> own_layer_tensors;
  RopeStyle rope_style;
  QkNorm qk_norm;
  bool qkv_bias;  // a file may have biases for q, k and v
  bool shared_expert;
  bool renormalize;  // where expert_weights_norm is absent
  ExpertWidth expert_width;
};

std::span<const Family> all_families();
const Family* find_family(std::string_view architecture);

}  // namespace conclave
