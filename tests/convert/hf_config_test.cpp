#include "convert/hf_config.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "convert/checkpoint_fixture.h"

namespace conclave {
namespace {

using testing::tiny_checkpoint;

HfModel read(
    const std::string& architecture, const std::function<void(Json&)>& edit = [](Json&) {}) {
  Json config = tiny_checkpoint(architecture).config;
  edit(config);
  return read_hf_config(JsonObject(config, "config.json"));
}

template <class T>
T key(const HfModel& model, const std::string& name) {
  for (const auto& [held, value] : model.keys) {
    if (held == name) return std::get<T>(value);
  }
  ADD_FAILURE() << "no key " << name;
  return T{};
}

bool has_key(const HfModel& model, const std::string& name) {
  return std::any_of(model.keys.begin(), model.keys.end(), [&](const auto& item) { return item.first == name; });
}

std::string refusal(const std::string& architecture, const std::function<void(Json&)>& edit) {
  try {
    read(architecture, edit);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HfConfig, EveryFamilysNumbers) {
  const HfModel qwen3 = read("Qwen3MoeForCausalLM");
  EXPECT_EQ(qwen3.family->architecture, "qwen3moe");
  EXPECT_EQ(key<std::uint32_t>(qwen3, "qwen3moe.block_count"), 2U);
  EXPECT_EQ(key<std::uint32_t>(qwen3, "qwen3moe.attention.key_length"), 8U);
  EXPECT_EQ(key<std::uint32_t>(qwen3, "qwen3moe.expert_feed_forward_length"), 64U);
  EXPECT_EQ(key<std::uint32_t>(qwen3, "qwen3moe.feed_forward_length"), 256U);
  EXPECT_EQ(key<float>(qwen3, "qwen3moe.rope.freq_base"), 50000.0F);
  EXPECT_EQ(key<bool>(qwen3, "qwen3moe.expert_weights_norm"), false);  // what transformers assumes
  EXPECT_EQ(key<std::uint32_t>(read("Qwen2MoeForCausalLM"), "qwen2moe.expert_shared_feed_forward_length"), 96U);
  const HfModel mixtral = read("MixtralForCausalLM");
  EXPECT_EQ(mixtral.family->architecture, "llama");
  EXPECT_EQ(mixtral.config.experts.d_ff, 64);
  EXPECT_EQ(key<bool>(mixtral, "llama.expert_weights_norm"), true);
  EXPECT_EQ(key<std::uint32_t>(read("OlmoeForCausalLM"), "olmoe.expert_count"), 3U);
}

TEST(HfConfig, TheNamesOfOlderAndNewerVersions) {
  const HfModel model = read("Qwen3MoeForCausalLM", [](Json& c) {
    c["num_local_experts"] = c["num_experts"];
    c.erase("num_experts");
    c["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 1234.0}};
    c.erase("rope_theta");
    c["head_dim"] = 16;
    c["norm_topk_prob"] = true;
  });
  EXPECT_EQ(model.config.experts.n_experts, 3);
  EXPECT_EQ(key<float>(model, "qwen3moe.rope.freq_base"), 1234.0F);
  EXPECT_EQ(key<std::uint32_t>(model, "qwen3moe.attention.value_length"), 16U);
  EXPECT_EQ(key<bool>(model, "qwen3moe.expert_weights_norm"), true);
  EXPECT_FALSE(has_key(model, "qwen3moe.rope.scaling.type"));
  // By model_type, with the class's own rope base.
  const HfModel other = read("MixtralForCausalLM", [](Json& c) {
    c.erase("architectures");
    c.erase("rope_theta");
    c["model_type"] = "mixtral";
    c["rope_scaling"] = nullptr;
  });
  EXPECT_EQ(key<float>(other, "llama.rope.freq_base"), 1e6F);
}

TEST(HfConfig, RopeScaling) {
  const HfModel yarn = read("Qwen3MoeForCausalLM", [](Json& c) {
    c["rope_scaling"] = {{"type", "yarn"},
                         {"factor", 4.0},
                         {"original_max_position_embeddings", 32},
                         {"attention_factor", 2.2772588722239784},  // twice 1 + 0.1 ln 4
                         {"beta_fast", 24}};
  });
  EXPECT_EQ(key<std::string>(yarn, "qwen3moe.rope.scaling.type"), "yarn");
  EXPECT_EQ(key<float>(yarn, "qwen3moe.rope.scaling.factor"), 4.0F);
  EXPECT_EQ(key<std::uint32_t>(yarn, "qwen3moe.rope.scaling.original_context_length"), 32U);
  EXPECT_FLOAT_EQ(key<float>(yarn, "qwen3moe.rope.scaling.yarn_attn_factor"), 2.0F);
  EXPECT_EQ(key<float>(yarn, "qwen3moe.rope.scaling.yarn_beta_fast"), 24.0F);
  const HfModel linear = read("OlmoeForCausalLM", [](Json& c) {
    c["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 2}};
  });
  EXPECT_EQ(key<std::string>(linear, "olmoe.rope.scaling.type"), "linear");

  const HfModel llama3 = read("MixtralForCausalLM", [](Json& c) {
    c["head_dim"] = 8;
    c["rope_theta"] = 10000.0;
    c["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 128}};
  });
  // Wavelengths 6.3, 63, 628 and 6283 against 128 / 4 and 128 / 1: kept, blended, slowed, slowed.
  ASSERT_EQ(llama3.rope_factors.size(), 4U);
  EXPECT_EQ(llama3.rope_factors[0], 1.0F);
  const double smooth = (128.0 / 62.83185307179586 - 1.0) / 3.0;
  EXPECT_NEAR(llama3.rope_factors[1], 1.0 / ((1.0 - smooth) / 8.0 + smooth), 1e-5);
  EXPECT_EQ(llama3.rope_factors[2], 8.0F);
  EXPECT_EQ(llama3.rope_factors[3], 8.0F);
}

TEST(HfConfig, RefusesWhatItCannotConvert) {
  const std::string q3 = "Qwen3MoeForCausalLM";
  const auto set = [](const char* name, const Json& value) { return [name, value](Json& c) { c[name] = value; }; };
  const std::tuple<std::string, std::function<void(Json&)>, std::string> cases[] = {
      {q3, set("architectures", {"LlamaForCausalLM"}), "architecture 'LlamaForCausalLM' is not supported"},
      {q3, set("architectures", {7}), "architectures is [7], must be a list of names"},
      {q3, [](Json& c) { c.erase("architectures"); }, "architectures is missing"},
      {q3, [](Json& c) { c.erase("hidden_size"); }, "hidden_size is missing"},
      {q3, set("hidden_size", "big"), "hidden_size is \"big\", must be an integer from 1 to"},
      {q3, set("hidden_size", -5), "hidden_size is -5"},
      {q3, set("hidden_size", 1e300), "must be an integer"},
      {q3, set("hidden_size", 18446744073709551615ULL), "must be an integer"},
      {q3, set("hidden_size", 33), "hidden_size is 33, must be a multiple of the 4 heads"},
      {q3, set("num_key_value_heads", 3), "a divisor of the 4 query heads"},
      {q3, set("num_hidden_layers", 0), "num_hidden_layers is 0"},
      {q3, set("num_experts_per_tok", 4), "num_experts_per_tok is 4, must be an integer from 1 to 3"},
      {q3, set("vocab_size", 1 << 30), "vocab_size is"},
      {q3, set("rms_norm_eps", 2.0), "rms_norm_eps is 2.0"},
      {q3, set("hidden_act", "gelu"), "hidden_act is \"gelu\", must be silu"},
      {q3, set("mlp_only_layers", {0}), "layers without experts are not supported"},
      {q3, set("decoder_sparse_step", 2), "layers without experts are not supported"},
      {q3, set("quantization_config", {{"quant_method", "fp8"}}), "quantised already"},
      {q3, set("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}), "must be default, linear or yarn"},
      {q3, set("rope_scaling", {{"rope_type", "llama3"}, {"factor", 2}}), "must be default, linear or yarn"},
      {q3, set("rope_scaling", {{"rope_type", "yarn"}}), "factor is missing"},
      {q3, set("rope_scaling", {{"rope_type", "yarn"}, {"factor", -1}}), "factor is -1, must be a positive number"},
      {q3, set("rope_parameters", {{"full_attention", {{"rope_theta", 1.0}}}}), "ropes of their own"},
      {"MixtralForCausalLM", set("sliding_window", 16), "windows are not supported"},
      {"OlmoeForCausalLM", set("clip_qkv", 8.0), "clip_qkv is 8.0, must be null"},
      {"Qwen2MoeForCausalLM",
       [](Json& c) {
         c["use_sliding_window"] = true;
         c["sliding_window"] = 64;
       },
       "windows"},
  };
  for (const auto& [architecture, edit, part] : cases) {
    const std::string said = refusal(architecture, edit);
    EXPECT_TRUE(said.starts_with("config.json: ")) << part << said;
    EXPECT_NE(said.find(part), std::string::npos) << said;
  }
  EXPECT_EQ(refusal(q3, set("sliding_window", 16)), "");  // without use_sliding_window it has no meaning
  EXPECT_EQ(refusal("MixtralForCausalLM", set("sliding_window", 4096)), "");  // the whole context
}

TEST(HfConfig, JsonIsBoundedInDepth) {
  EXPECT_THROW(parse_json(std::string(100'000, '['), "x"), Error);
  EXPECT_THROW(parse_json(std::string(65, '[') + std::string(65, ']'), "x"), Error);
  EXPECT_NO_THROW(parse_json(std::string(64, '[') + std::string(64, ']'), "x"));
  EXPECT_NO_THROW(parse_json("\"" + std::string(100, '[') + "\\\"[\"", "x"));
  EXPECT_THROW(parse_json("{\"a\":1e999}", "x"), Error);
  EXPECT_THROW(parse_json("{\"a\":\"\xff\"}", "x"), Error);
  EXPECT_THROW(parse_json("", "x"), Error);
}

}  // namespace
}  // namespace conclave
