#include "model/families.h"

#include "base/error.h"

namespace conclave {
namespace {

using enum Dim;
constexpr Storage kFloats = Storage::floats;
constexpr Storage kBlocks = Storage::floats_or_blocks;
constexpr Presence kOptional = Presence::optional;

// clang-format off
constexpr ModelTensorSpec kOwnHead[] = {
    {"token_embd.weight",  &ModelTensors::token_embd,  {n_vocab, d_model}, kBlocks},
    {"output_norm.weight", &ModelTensors::output_norm, {d_model},          kFloats},
    {"output.weight",      &ModelTensors::output,      {n_vocab, d_model}, kBlocks},
};

// Without output.weight the head is the token embedding.
constexpr ModelTensorSpec kMaybeTied[] = {
    {"token_embd.weight",  &ModelTensors::token_embd,  {n_vocab, d_model}, kBlocks},
    {"output_norm.weight", &ModelTensors::output_norm, {d_model},          kFloats},
    {"output.weight",      &ModelTensors::output,      {n_vocab, d_model}, kBlocks, kOptional},
};

constexpr ModelTensorSpec kMaybeTiedWithRopeFactors[] = {
    {"token_embd.weight",  &ModelTensors::token_embd,   {n_vocab, d_model}, kBlocks},
    {"output_norm.weight", &ModelTensors::output_norm,  {d_model},          kFloats},
    {"output.weight",      &ModelTensors::output,       {n_vocab, d_model}, kBlocks, kOptional},
    {"rope_freqs.weight",  &ModelTensors::rope_factors, {rope_pairs},       kFloats, kOptional},
};

constexpr LayerTensorSpec kLayer[] = {
    {"attn_norm.weight",     &LayerTensors::attn_norm, {d_model},                  kFloats},
    {"attn_q.weight",        &LayerTensors::attn_q,    {q_width, d_model},         kBlocks},
    {"attn_k.weight",        &LayerTensors::attn_k,    {kv_width, d_model},        kBlocks},
    {"attn_v.weight",        &LayerTensors::attn_v,    {kv_width, d_model},        kBlocks},
    {"attn_output.weight",   &LayerTensors::attn_out,  {d_model, q_width},         kBlocks},
    {"ffn_norm.weight",      &LayerTensors::ffn_norm,  {d_model},                  kFloats},
    {"ffn_gate_inp.weight",  &LayerTensors::router,    {n_experts, d_model},       kFloats},
    {"ffn_gate_exps.weight", &LayerTensors::gate,      {n_experts, d_ff, d_model}, kBlocks},
    {"ffn_up_exps.weight",   &LayerTensors::up,        {n_experts, d_ff, d_model}, kBlocks},
    {"ffn_down_exps.weight", &LayerTensors::down,      {n_experts, d_model, d_ff}, kBlocks},
};

constexpr LayerTensorSpec kHeadNorms[] = {
    {"attn_q_norm.weight", &LayerTensors::q_norm, {d_head}, kFloats},
    {"attn_k_norm.weight", &LayerTensors::k_norm, {d_head}, kFloats},
};

constexpr LayerTensorSpec kWideNorms[] = {
    {"attn_q_norm.weight", &LayerTensors::q_norm, {q_width},  kFloats},
    {"attn_k_norm.weight", &LayerTensors::k_norm, {kv_width}, kFloats},
};

constexpr LayerTensorSpec kBiasesAndSharedExpert[] = {
    {"attn_q.bias",               &LayerTensors::q_bias,        {q_width},              kFloats, Presence::with_qkv_bias},
    {"attn_k.bias",               &LayerTensors::k_bias,        {kv_width},             kFloats, Presence::with_qkv_bias},
    {"attn_v.bias",               &LayerTensors::v_bias,        {kv_width},             kFloats, Presence::with_qkv_bias},
    {"ffn_gate_inp_shexp.weight", &LayerTensors::shared_router, {d_model},              kFloats},
    {"ffn_gate_shexp.weight",     &LayerTensors::shared_gate,   {d_ff_shared, d_model}, kBlocks},
    {"ffn_up_shexp.weight",       &LayerTensors::shared_up,     {d_ff_shared, d_model}, kBlocks},
    {"ffn_down_shexp.weight",     &LayerTensors::shared_down,   {d_model, d_ff_shared}, kBlocks},
};
// clang-format on

constexpr Family kFamilies[] = {
    {
        .architecture = "llama",  // with experts: Mixtral 8x7B, 8x22B
        .model_tensors = kMaybeTiedWithRopeFactors,
        .common_layer_tensors = kLayer,
        .own_layer_tensors = {},
        .rope_style = RopeStyle::interleaved,
        .qk_norm = QkNorm::none,
        .qkv_bias = false,
        .shared_expert = false,
        .renormalize = true,
        .expert_width = ExpertWidth::feed_forward,
    },
    {
        .architecture = "olmoe",  // OLMoE-1B-7B
        .model_tensors = kOwnHead,
        .common_layer_tensors = kLayer,
        .own_layer_tensors = kWideNorms,
        .rope_style = RopeStyle::neox,
        .qk_norm = QkNorm::full_width,
        .qkv_bias = false,
        .shared_expert = false,
        .renormalize = false,
        .expert_width = ExpertWidth::feed_forward,
    },
    {
        .architecture = "qwen2moe",  // Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B
        .model_tensors = kOwnHead,
        .common_layer_tensors = kLayer,
        .own_layer_tensors = kBiasesAndSharedExpert,
        .rope_style = RopeStyle::neox,
        .qk_norm = QkNorm::none,
        .qkv_bias = true,
        .shared_expert = true,
        .renormalize = false,
        .expert_width = ExpertWidth::feed_forward_per_top_k,
    },
    {
        .architecture = "qwen3moe",  // Qwen3-30B-A3B, Qwen3-235B-A22B
        .model_tensors = kMaybeTied,
        .common_layer_tensors = kLayer,
        .own_layer_tensors = kHeadNorms,
        .rope_style = RopeStyle::neox,
        .qk_norm = QkNorm::per_head,
        .qkv_bias = false,
        .shared_expert = false,
        .renormalize = true,
        .expert_width = ExpertWidth::feed_forward_per_top_k,
    },
};

}  // namespace

std::string_view dim_name(Dim dim) {
  switch (dim) {
    case none:
      return "";
    case d_model:
      return "d_model";
    case n_vocab:
      return "n_vocab";
    case q_width:
      return "n_heads*d_head";
    case kv_width:
      return "n_kv_heads*d_head";
    case d_head:
      return "d_head";
    case n_experts:
      return "n_experts";
    case d_ff:
      return "d_ff";
    case d_ff_shared:
      return "d_ff_shared";
    case rope_pairs:
      return "rope_dims/2";
  }
  CONCLAVE_CHECK(false, "a Dim without a name");
  return {};
}

std::int64_t dim_value(Dim dim, const ModelConfig& config) {
  switch (dim) {
    case none:
      break;
    case d_model:
      return config.d_model;
    case n_vocab:
      return config.n_vocab;
    case q_width:
      return config.attention.n_heads * config.attention.d_head;
    case kv_width:
      return config.attention.n_kv_heads * config.attention.d_head;
    case d_head:
      return config.attention.d_head;
    case n_experts:
      return config.experts.n_experts;
    case d_ff:
      return config.experts.d_ff;
    case d_ff_shared:
      return config.experts.d_ff_shared;
    case rope_pairs:
      return config.rope.n_dims / 2;
  }
  CONCLAVE_CHECK(false, "a Dim without a value");
  return 0;
}

std::span<const Family> all_families() {
  return kFamilies;
}

const Family* find_family(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return &family;
  }
  return nullptr;
}

}  // namespace conclave
