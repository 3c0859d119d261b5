#include "convert/hf_config.h"

#include <cmath>
#include <numbers>

#include "base/fail.h"
#include "base/file_text.h"
#include "model/config_reader.h"

namespace conclave {
namespace {

constexpr HfArchitecture kArchitectures[] = {
    {
        .name = "Qwen3MoeForCausalLM",
        .model_type = "qwen3_moe",
        .family = "qwen3moe",
        .rope_theta = 10'000.0,
        .norm_eps = 1e-6,
        .moe_width = true,
        .always_renormalizes = false,
        .windows_without_flag = false,
        .interleaved_rope = false,
    },
    {
        .name = "Qwen2MoeForCausalLM",
        .model_type = "qwen2_moe",
        .family = "qwen2moe",
        .rope_theta = 10'000.0,
        .norm_eps = 1e-6,
        .moe_width = true,
        .always_renormalizes = false,
        .windows_without_flag = false,
        .interleaved_rope = false,
    },
    {
        .name = "MixtralForCausalLM",
        .model_type = "mixtral",
        .family = "llama",
        .rope_theta = 1'000'000.0,
        .norm_eps = 1e-5,
        .moe_width = false,
        .always_renormalizes = true,
        .windows_without_flag = true,
        .interleaved_rope = true,
    },
    {
        .name = "OlmoeForCausalLM",
        .model_type = "olmoe",
        .family = "olmoe",
        .rope_theta = 10'000.0,
        .norm_eps = 1e-5,
        .moe_width = false,
        .always_renormalizes = false,
        .windows_without_flag = false,
        .interleaved_rope = false,
    },
};

const HfArchitecture& find_architecture(const JsonObject& config) {
  std::string wanted;
  const Json* list = config.find_array("architectures");
  const bool named = list != nullptr && !list->empty();
  if (named) {
    if (!list->front().is_string()) config.wrong("architectures", "a list of names");
    wanted = list->front().get<std::string>();
  } else {
    const auto type = config.find_string("model_type");
    if (!type) config.missing("architectures");
    wanted = *type;
  }
  std::vector<std::string_view> known;
  for (const HfArchitecture& item : kArchitectures) {
    const std::string_view name = named ? item.name : item.model_type;
    if (name == wanted) return item;
    known.push_back(name);
  }
  fail(ErrorCode::unsupported, "{}: architecture '{}' is not supported; supported: {}", config.shown(),
       printable(wanted), fmt::join(known, ", "));
}

// Members that change what a model computes in ways that conclave does not.
void refuse_features(const JsonObject& config, const HfArchitecture& architecture, std::int64_t n_context) {
  const std::string act = config.find_string("hidden_act").value_or("silu");
  if (act != "silu" && act != "swish") config.wrong("hidden_act", "silu");
  if (config.find("quantization_config") != nullptr) {
    fail(ErrorCode::unsupported, "{}: quantization_config: the tensors are quantised already; convert the original",
         config.shown());
  }
  if (config.find_number("clip_qkv").value_or(0.0) != 0.0) config.wrong("clip_qkv", "null");
  if (config.find_number("partial_rotary_factor").value_or(1.0) != 1.0) config.wrong("partial_rotary_factor", "1");
  if (config.find_integer("decoder_sparse_step", 0, kMaxLayers).value_or(1) != 1) {
    config.wrong("decoder_sparse_step", "1: layers without experts are not supported");
  }
  const Json* dense = config.find_array("mlp_only_layers");
  if (dense != nullptr && !dense->empty()) {
    config.wrong("mlp_only_layers", "empty: layers without experts are not supported");
  }
  const auto window = config.find_integer("sliding_window", 0, std::numeric_limits<std::int64_t>::max());
  const bool windowed = config.find_flag("use_sliding_window").value_or(architecture.windows_without_flag);
  if (windowed && window.value_or(0) != 0 && *window < n_context) {
    config.wrong("sliding_window", "null or the whole context: windows are not supported");
  }
}

AttentionConfig read_attention(const JsonObject& config, const Family& family, std::int64_t d_model) {
  AttentionConfig attention{.qk_norm = family.qk_norm};
  attention.n_heads = config.integer("num_attention_heads", 1, kMaxHeads);
  attention.n_kv_heads = config.find_integer("num_key_value_heads", 1, kMaxHeads).value_or(attention.n_heads);
  if (attention.n_heads % attention.n_kv_heads != 0) {
    config.wrong("num_key_value_heads", fmt::format("a divisor of the {} query heads", attention.n_heads));
  }
  const auto d_head = config.find_integer("head_dim", 2, kMaxHeadWidth);
  if (!d_head && d_model % attention.n_heads != 0) {
    config.wrong("hidden_size",
                 fmt::format("a multiple of the {} heads where head_dim is not given", attention.n_heads));
  }
  attention.d_head = d_head.value_or(d_model / attention.n_heads);
  if (attention.d_head % 2 != 0)
    config.wrong(d_head ? "head_dim" : "hidden_size", "such that heads have an even width");
  if (attention.n_heads * attention.d_head > kMaxWidth) {
    config.wrong("num_attention_heads", fmt::format("such that all heads are at most {} wide", kMaxWidth));
  }
  return attention;
}

// Rope type "llama3": pairs that turn slowly are slowed down by `factor`, fast ones are left alone, and those between
// are blended.
std::vector<float> llama3_factors(const JsonObject& rope, double base, std::int64_t d_head) {
  const double factor = rope.find_number("factor").value_or(8.0);
  const double low = rope.find_number("low_freq_factor").value_or(1.0);
  const double high = rope.find_number("high_freq_factor").value_or(4.0);
  const auto original =
      static_cast<double>(rope.find_integer("original_max_position_embeddings", 1, kMaxContext).value_or(8192));
  if (!(factor > 0.0) || !(low > 0.0) || !(high > low)) rope.wrong("factor", "positive, with 0 < low < high");
  std::vector<float> factors;
  for (std::int64_t i = 0; i < d_head / 2; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(d_head));
    const double turns = original * frequency / (2.0 * std::numbers::pi);  // over the original context
    const double fast = std::fmin(std::fmax((turns - low) / (high - low), 0.0), 1.0);
    factors.push_back(static_cast<float>(1.0 / ((1.0 - fast) / factor + fast)));
  }
  return factors;
}

class RopeReader {
 public:
  RopeReader(const JsonObject& config, HfModel& model) : config_(config), model_(model) {
    // Before version 5: rope_theta and rope_scaling. Since: rope_parameters has it all.
    rope_ = config.find_object("rope_parameters");
    if (!rope_) rope_ = config.find_object("rope_scaling");
  }

  void read(const std::string& prefix) {
    RopeConfig& rope = model_.config.rope;
    rope.style = model_.family->rope_style;
    rope.n_dims = model_.config.attention.d_head;
    std::optional<double> theta = rope_ ? rope_->find_number("rope_theta") : std::nullopt;
    if (!theta) theta = config_.find_number("rope_theta");
    const double base = theta.value_or(model_.architecture->rope_theta);
    if (!(base > 0.0 && base < 1e30)) (rope_ ? *rope_ : config_).wrong("rope_theta", "a positive number");
    rope.base = static_cast<float>(base);
    add(prefix, "rope.freq_base", rope.base);
    add(prefix, "rope.dimension_count", static_cast<std::uint32_t>(rope.n_dims));
    if (rope_) read_scaling(prefix, base);
  }

 private:
  void add(const std::string& prefix, std::string_view key, gguf::Metadata value) {
    model_.keys.emplace_back(fmt::format("{}.{}", prefix, key), std::move(value));
  }

  void read_scaling(const std::string& prefix, double base) {
    for (const auto& [key, value] : rope_->json().items()) {
      if (value.is_object()) rope_->wrong(key, "no object: layers with ropes of their own are not supported");
    }
    if (rope_->find_number("partial_rotary_factor").value_or(1.0) != 1.0) rope_->wrong("partial_rotary_factor", "1");
    auto type = rope_->find_string("rope_type");
    if (!type) type = rope_->find_string("type");
    if (!type || *type == "default") return;
    if (*type == "llama3" && model_.family->architecture == "llama") {
      model_.rope_factors = llama3_factors(*rope_, base, model_.config.attention.d_head);
      return;
    }
    if (*type != "linear" && *type != "yarn") {
      rope_->wrong(rope_->find("rope_type") != nullptr ? "rope_type" : "type", "default, linear or yarn");
    }
    const double factor = positive("factor").value_or(0.0);
    if (factor == 0.0) rope_->missing("factor");
    add(prefix, "rope.scaling.type", *type);
    add(prefix, "rope.scaling.factor", static_cast<float>(factor));
    if (*type == "linear") return;
    for (const char* other : {"mscale", "mscale_all_dim"}) {
      if (rope_->find_number(other).value_or(0.0) != 0.0) rope_->wrong(other, "absent");
    }
    if (rope_->find_flag("truncate") == false) rope_->wrong("truncate", "true");
    const auto original = rope_->find_integer("original_max_position_embeddings", 1, kMaxContext);
    add(prefix, "rope.scaling.original_context_length",
        static_cast<std::uint32_t>(original.value_or(model_.config.n_context)));
    // transformers' attention_factor is the whole magnitude; the key multiplies the usual 1 + 0.1 ln(factor).
    if (const auto whole = positive("attention_factor")) {
      const double usual = factor > 1.0 ? 0.1 * std::log(factor) + 1.0 : 1.0;
      add(prefix, "rope.scaling.yarn_attn_factor", static_cast<float>(*whole / usual));
    }
    if (const auto fast = positive("beta_fast")) add(prefix, "rope.scaling.yarn_beta_fast", static_cast<float>(*fast));
    if (const auto slow = positive("beta_slow")) add(prefix, "rope.scaling.yarn_beta_slow", static_cast<float>(*slow));
  }

  std::optional<double> positive(std::string_view key) const {
    const auto value = rope_->find_number(key);
    if (value && !(*value > 0.0 && *value < 1e30)) rope_->wrong(key, "a positive number");
    return value;
  }

  const JsonObject& config_;
  HfModel& model_;
  std::optional<JsonObject> rope_;
};

ExpertConfig read_experts(const JsonObject& config, const HfArchitecture& architecture, const Family& family) {
  ExpertConfig experts;
  // Both names are in use, for the same models in different versions.
  const std::string_view count = config.find("num_experts") != nullptr ? "num_experts" : "num_local_experts";
  experts.n_experts = config.integer(count, 1, kMaxExperts);
  experts.rule.top_k = config.integer("num_experts_per_tok", 1, experts.n_experts);
  experts.rule.renormalize = architecture.always_renormalizes || config.find_flag("norm_topk_prob").value_or(false);
  experts.d_ff = config.integer(architecture.moe_width ? "moe_intermediate_size" : "intermediate_size", 1, kMaxWidth);
  if (family.shared_expert) experts.d_ff_shared = config.integer("shared_expert_intermediate_size", 1, kMaxWidth);
  return experts;
}

}  // namespace

HfModel read_hf_config(const JsonObject& config) {
  HfModel model{.architecture = &find_architecture(config)};
  model.family = find_family(model.architecture->family);
  CONCLAVE_CHECK(model.family != nullptr, std::string(model.architecture->family));
  ModelConfig& c = model.config;
  c.architecture = model.architecture->family;
  c.n_layers = config.integer("num_hidden_layers", 1, kMaxLayers);
  c.d_model = config.integer("hidden_size", 1, kMaxWidth);
  c.n_vocab = config.integer("vocab_size", 1, kMaxVocab);
  c.n_context = config.integer("max_position_embeddings", 1, kMaxContext);
  const double eps = config.find_number("rms_norm_eps").value_or(model.architecture->norm_eps);
  c.norm_eps = static_cast<float>(eps);
  if (!(c.norm_eps > 0.0F && c.norm_eps < 1.0F)) config.wrong("rms_norm_eps", "above 0 and below 1");
  c.attention = read_attention(config, *model.family, c.d_model);
  c.experts = read_experts(config, *model.architecture, *model.family);
  refuse_features(config, *model.architecture, c.n_context);
  model.tied = config.find_flag("tie_word_embeddings");
  model.qkv_bias = config.find_flag("qkv_bias");

  const std::string prefix(model.family->architecture);
  const auto add = [&](std::string_view key, gguf::Metadata value) {
    model.keys.emplace_back(fmt::format("{}.{}", prefix, key), std::move(value));
  };
  const auto u32 = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
  add("block_count", u32(c.n_layers));
  add("context_length", u32(c.n_context));
  add("embedding_length", u32(c.d_model));
  const auto dense_width = config.find_integer("intermediate_size", 0, kMaxWidth);
  if (dense_width) add("feed_forward_length", u32(*dense_width));
  add("attention.head_count", u32(c.attention.n_heads));
  add("attention.head_count_kv", u32(c.attention.n_kv_heads));
  add("attention.key_length", u32(c.attention.d_head));
  add("attention.value_length", u32(c.attention.d_head));
  add("attention.layer_norm_rms_epsilon", c.norm_eps);
  RopeReader(config, model).read(prefix);
  add("expert_count", u32(c.experts.n_experts));
  add("expert_used_count", u32(c.experts.rule.top_k));
  add("expert_feed_forward_length", u32(c.experts.d_ff));
  if (model.family->shared_expert) add("expert_shared_feed_forward_length", u32(c.experts.d_ff_shared));
  add("expert_weights_norm", c.experts.rule.renormalize);
  add("vocab_size", u32(c.n_vocab));
  return model;
}

}  // namespace conclave
