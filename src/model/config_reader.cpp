#include "model/config_reader.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "base/fail.h"
#include "base/file_text.h"
#include "model/keys.h"

namespace conclave {
namespace {

// Keys of features that no family here computes. A value that switches the feature off is fine; any other would change
// results silently, so it is refused.
struct NeutralInteger {
  std::string_view key;
  std::int64_t off;
  std::int64_t also_off;
};
struct NeutralNumber {
  std::string_view key;
  float off;
  float also_off;
};
constexpr NeutralInteger kNeutralIntegers[] = {
    {"leading_dense_block_count", 0, 0}, {"nextn_predict_layers", 0, 0}, {"interleave_moe_layer_step", 0, 1},
    {"moe_every_n_layers", 0, 1},        {"expert_latent_length", 0, 0}, {"pooling_type", 0, 0},
};
constexpr NeutralNumber kNeutralNumbers[] = {
    {"logit_scale", 0, 1},
    {"embedding_scale", 0, 1},
    {"residual_scale", 0, 1},
    {"attn_logit_softcapping", 0, 0},
    {"final_logit_softcapping", 0, 0},
    {"router_logit_softcapping", 0, 0},
    {"attention.clamp_kqv", 0, 0},
    {"attention.max_alibi_bias", 0, 0},
    {"rope.scaling.alpha", 0, 0},
    {"rope.scaling.yarn_log_multiplier", 0, 0},
};

void refuse_feature(const Keys& keys, std::string_view key, double value) {
  fail(ErrorCode::bad_file, "{} is {}: conclave does not compute what this asks for", keys.full(key), value);
}

void check_neutral(const Keys& keys, const ModelConfig& config) {
  constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
  for (const NeutralInteger& item : kNeutralIntegers) {
    const auto value = keys.find_integer(item.key, {std::numeric_limits<std::int64_t>::min(), kAny});
    if (value && *value != item.off && *value != item.also_off) {
      refuse_feature(keys, item.key, static_cast<double>(*value));
    }
  }
  constexpr FloatRange kFinite{.above = std::numeric_limits<float>::lowest(), .or_equal = true};
  for (const NeutralNumber& item : kNeutralNumbers) {
    const auto value = keys.find_number(item.key, kFinite);
    if (value && *value != item.off && *value != item.also_off) refuse_feature(keys, item.key, *value);
  }
  // A scale that says what holds anyway is fine.
  const float usual = 1.0F / std::sqrt(static_cast<float>(config.attention.d_head));
  const auto scale = keys.find_number("attention.scale", kFinite);
  if (scale && *scale != 0.0F && std::fabs(*scale - usual) > 1e-6F * usual) {
    refuse_feature(keys, "attention.scale", *scale);
  }
  const auto window = keys.find_integer("attention.sliding_window", {0, kAny});
  if (window && *window != 0 && *window < config.n_context) {
    refuse_feature(keys, "attention.sliding_window", static_cast<double>(*window));
  }
  if (keys.find_flag("attention.causal") == false) {
    fail(ErrorCode::bad_file, "{} is false: conclave runs causal models only", keys.full("attention.causal"));
  }
  if (keys.find_flag("use_parallel_residual") == true) {
    fail(ErrorCode::bad_file, "{} is true: not supported", keys.full("use_parallel_residual"));
  }
}

// Biases come for q, k and v of all layers together: the first layer tells.
bool has_qkv_bias(const gguf::File& file) {
  return file.find_tensor("blk.0.attn_q.bias") != nullptr || file.find_tensor("blk.0.attn_k.bias") != nullptr ||
         file.find_tensor("blk.0.attn_v.bias") != nullptr;
}

AttentionConfig read_attention(const gguf::File& file, const Keys& keys, const Family& family,
                               const ModelConfig& config) {
  AttentionConfig attention{.qk_norm = family.qk_norm, .qkv_bias = family.qkv_bias && has_qkv_bias(file)};
  const auto heads = keys.find_layer_integer("attention.head_count", {1, kMaxHeads}, config.n_layers);
  if (!heads) keys.missing("attention.head_count");
  attention.n_heads = *heads;
  attention.n_kv_heads =
      keys.find_layer_integer("attention.head_count_kv", {1, kMaxHeads}, config.n_layers).value_or(attention.n_heads);
  if (attention.n_heads % attention.n_kv_heads != 0) {
    fail(ErrorCode::bad_file, "{} is {}, must divide the {} query heads", keys.full("attention.head_count_kv"),
         attention.n_kv_heads, attention.n_heads);
  }
  const auto key_length = keys.find_integer("attention.key_length", {1, kMaxHeadWidth});
  const auto value_length = keys.find_integer("attention.value_length", {1, kMaxHeadWidth});
  if ((!key_length || !value_length) && config.d_model % attention.n_heads != 0) {
    fail(ErrorCode::bad_file, "{} is {}, must be a multiple of the {} heads where attention.key_length is not given",
         keys.full("embedding_length"), config.d_model, attention.n_heads);
  }
  const std::int64_t fallback = config.d_model / attention.n_heads;
  attention.d_head = key_length.value_or(fallback);
  if (value_length.value_or(fallback) != attention.d_head) {
    fail(ErrorCode::bad_file, "{} is {}, must equal the key length {}", keys.full("attention.value_length"),
         value_length.value_or(fallback), attention.d_head);
  }
  if (attention.n_heads * attention.d_head > kMaxWidth) {
    fail(ErrorCode::bad_file, "{}: {} heads of {} are wider than {}", keys.full("attention.head_count"),
         attention.n_heads, attention.d_head, kMaxWidth);
  }
  return attention;
}

RopeConfig read_rope(const Keys& keys, const Family& family, const ModelConfig& config) {
  RopeConfig rope{.style = family.rope_style};
  const std::int64_t d_head = config.attention.d_head;
  rope.n_dims = keys.find_integer("rope.dimension_count", {2, std::max<std::int64_t>(d_head, 2)}).value_or(d_head);
  if (rope.n_dims % 2 != 0) {
    fail(ErrorCode::bad_file, "{} is {}, must be even", keys.full("rope.dimension_count"), rope.n_dims);
  }
  rope.base = keys.find_number("rope.freq_base", {}).value_or(rope.base);

  const auto type = keys.find_string("rope.scaling.type");
  const auto factor = keys.find_number("rope.scaling.factor", {});
  const auto old_factor = keys.find_number("rope.scale_linear", {});
  rope.original_context =
      keys.find_integer("rope.scaling.original_context_length", {1, kMaxContext}).value_or(config.n_context);
  rope.attn_factor = keys.find_number("rope.scaling.attn_factor", {}).value_or(rope.attn_factor);
  rope.yarn_attn_factor = keys.find_number("rope.scaling.yarn_attn_factor", {}).value_or(rope.yarn_attn_factor);
  rope.beta_fast = keys.find_number("rope.scaling.yarn_beta_fast", {}).value_or(rope.beta_fast);
  rope.beta_slow = keys.find_number("rope.scaling.yarn_beta_slow", {}).value_or(rope.beta_slow);
  keys.find_flag("rope.scaling.finetuned");

  if (type == "none") return rope;
  rope.factor = factor ? *factor : old_factor.value_or(1.0F);
  if (!type || type == "linear") {  // a factor alone means linear
    rope.scaling = rope.factor == 1.0F ? RopeScaling::none : RopeScaling::linear;
  } else if (type == "yarn") {
    if (!factor) keys.missing("rope.scaling.factor");
    if (rope.beta_slow > rope.beta_fast) {
      fail(ErrorCode::bad_file, "{} is {}, must not be above yarn_beta_fast, which is {}",
           keys.full("rope.scaling.yarn_beta_slow"), rope.beta_slow, rope.beta_fast);
    }
    // How much of the blend is applied: all of it, in every model seen.
    const auto blend = keys.find_number("rope.scaling.yarn_ext_factor", {.or_equal = true});
    if (blend && *blend != 1.0F) {
      fail(ErrorCode::bad_file, "{} is {}, supported: 1", keys.full("rope.scaling.yarn_ext_factor"), *blend);
    }
    rope.scaling = RopeScaling::yarn;
  } else {
    fail(ErrorCode::bad_file, "{} is '{}', supported: none, linear, yarn", keys.full("rope.scaling.type"),
         printable(*type));
  }
  return rope;
}

// The numbers llama.cpp's files give to router scores; 0 is "the family's own".
Score read_score(const Keys& keys) {
  switch (keys.find_integer("expert_gating_func", {0, 4}).value_or(0)) {
    case 2:
      return Score::sigmoid;
    case 3:
      return Score::softmax_after_top_k;
    case 4:
      return Score::sqrt_softplus;
    default:
      return Score::softmax;
  }
}

RoutingRule read_rule(const Keys& keys, const Family& family, std::int64_t n_experts) {
  RoutingRule rule{.score = read_score(keys), .group_score = GroupScore::sum_of_two};
  rule.top_k = keys.integer("expert_used_count", {1, n_experts});
  rule.renormalize = keys.find_flag("expert_weights_norm").value_or(family.renormalize);
  const float scale = keys.find_number("expert_weights_scale", {.or_equal = true}).value_or(0.0F);
  rule.scale = scale == 0.0F ? 1.0F : scale;  // converters write 0 for "none"
  // 0 groups, like 1, means that the choice is free.
  rule.n_groups = std::max<std::int64_t>(1, keys.find_integer("expert_group_count", {0, n_experts}).value_or(1));
  const auto used = keys.find_integer("expert_group_used_count", {0, rule.n_groups});
  if (rule.n_groups == 1) return rule;
  if (n_experts % rule.n_groups != 0) {
    fail(ErrorCode::bad_file, "{} is {}, must divide the {} experts", keys.full("expert_group_count"), rule.n_groups,
         n_experts);
  }
  if (!used) keys.missing("expert_group_used_count");
  rule.top_groups = *used;
  const std::int64_t reachable = rule.top_groups * (n_experts / rule.n_groups);
  if (reachable < rule.top_k) {
    fail(ErrorCode::bad_file, "{} is {}: these groups hold {} experts, fewer than the {} used",
         keys.full("expert_group_used_count"), rule.top_groups, reachable, rule.top_k);
  }
  return rule;
}

ExpertConfig read_experts(const Keys& keys, const Family& family, const ModelConfig& config) {
  ExpertConfig experts;
  experts.n_experts = keys.find_integer("expert_count", {0, kMaxExperts}).value_or(0);
  if (experts.n_experts == 0) {
    fail(ErrorCode::bad_file, "{} is {}: not a mixture-of-experts model", keys.full("expert_count"),
         keys.find("expert_count") == nullptr ? "missing" : "0");
  }
  experts.rule = read_rule(keys, family, experts.n_experts);

  const auto feed_forward = keys.find_layer_integer("feed_forward_length", {0, kMaxWidth}, config.n_layers).value_or(0);
  experts.d_ff = keys.find_integer("expert_feed_forward_length", {0, kMaxWidth}).value_or(0);
  if (experts.d_ff == 0) {
    const std::int64_t parts = family.expert_width == ExpertWidth::feed_forward_per_top_k ? experts.rule.top_k : 1;
    if (feed_forward == 0) keys.missing("expert_feed_forward_length");
    if (feed_forward % parts != 0) {
      fail(ErrorCode::bad_file,
           "{} is {}, must be a multiple of the {} experts used where expert_feed_forward_length is missing",
           keys.full("feed_forward_length"), feed_forward, parts);
    }
    experts.d_ff = feed_forward / parts;
  }

  const std::int64_t n_shared = family.shared_expert ? 1 : 0;
  keys.find_integer("expert_shared_count", {n_shared, n_shared});
  const auto shared = keys.find_integer("expert_shared_feed_forward_length", {0, family.shared_expert ? kMaxWidth : 0});
  if (family.shared_expert) {
    experts.d_ff_shared = shared.value_or(0) != 0 ? *shared : feed_forward;
    if (experts.d_ff_shared == 0) keys.missing("expert_shared_feed_forward_length");
  }
  return experts;
}

}  // namespace

ModelConfig read_config(const gguf::File& file, const Family& family) {
  const Keys general(file, "general");
  const Keys keys(file, family.architecture);
  ModelConfig config;
  config.architecture = family.architecture;
  config.name = general.find_string("name").value_or("");
  config.n_layers = keys.integer("block_count", {1, kMaxLayers});
  config.d_model = keys.integer("embedding_length", {1, kMaxWidth});
  config.n_context = keys.integer("context_length", {1, kMaxContext});
  config.norm_eps = keys.number("attention.layer_norm_rms_epsilon", {.below = 1.0F});
  config.attention = read_attention(file, keys, family, config);
  config.rope = read_rope(keys, family, config);
  config.experts = read_experts(keys, family, config);
  check_neutral(keys, config);
  return config;
}

}  // namespace conclave
