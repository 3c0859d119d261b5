#include "model/config_reader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model_fixture.h"
#include "refusal.h"

namespace conclave::testing {
namespace {

using Strings = std::vector<std::string>;
using U32s = std::vector<std::uint32_t>;

ModelConfig config_of(const std::string& family, const Edit& edit) {
  ModelFixture model = tiny_model(family);
  edit(model);
  const TempDir dir;
  model.write(dir.path() / "m.gguf");
  return describe_model(gguf::File::open(dir.path() / "m.gguf")).config;
}

const Edit kNothing = [](ModelFixture&) {};

TEST(ConfigReader, ReadsEveryFamily) {
  for (const std::string family : {"qwen3moe", "qwen2moe", "olmoe", "llama"}) {
    SCOPED_TRACE(family);
    const ModelConfig c = config_of(family, kNothing);
    EXPECT_EQ(c.architecture, family);
    EXPECT_EQ(c.name, "tiny");
    EXPECT_EQ(c.n_layers, kTinyLayers);
    EXPECT_EQ(c.d_model, kTinyModel);
    EXPECT_EQ(c.n_vocab, kTinyVocab);
    EXPECT_EQ(c.n_context, 8192);
    EXPECT_EQ(c.norm_eps, 1e-6F);
    EXPECT_EQ(c.attention.n_heads, kTinyHeads);
    EXPECT_EQ(c.attention.n_kv_heads, kTinyKvHeads);
    EXPECT_EQ(c.attention.d_head, family == kQ ? 32 : 16);
    EXPECT_EQ(c.rope.n_dims, c.attention.d_head);
    EXPECT_EQ(c.rope.base, 1e6F);
    EXPECT_EQ(c.rope.scaling, RopeScaling::none);
    EXPECT_EQ(c.experts.n_experts, kTinyExperts);
    EXPECT_EQ(c.experts.d_ff, kTinyWidth);
    EXPECT_EQ(c.experts.d_ff_shared, family == "qwen2moe" ? kTinySharedWidth : 0);
    EXPECT_EQ(c.experts.rule.top_k, kTinyTopK);
    EXPECT_EQ(c.experts.rule.score, Score::softmax);
    EXPECT_EQ(c.experts.rule.scale, 1.0F);
  }
}

TEST(ConfigReader, FamiliesDifferWhereTheyShould) {
  const ModelConfig qwen3 = config_of("qwen3moe", kNothing);
  const ModelConfig qwen2 = config_of("qwen2moe", kNothing);
  const ModelConfig olmoe = config_of("olmoe", kNothing);
  const ModelConfig mixtral = config_of("llama", kNothing);
  EXPECT_TRUE(qwen3.experts.rule.renormalize);
  EXPECT_FALSE(qwen2.experts.rule.renormalize);
  EXPECT_FALSE(olmoe.experts.rule.renormalize);
  EXPECT_TRUE(mixtral.experts.rule.renormalize);
  EXPECT_EQ(qwen3.attention.qk_norm, QkNorm::per_head);
  EXPECT_EQ(olmoe.attention.qk_norm, QkNorm::full_width);
  EXPECT_EQ(mixtral.attention.qk_norm, QkNorm::none);
  EXPECT_TRUE(qwen2.attention.qkv_bias);
  EXPECT_EQ(qwen3.rope.style, RopeStyle::neox);
  EXPECT_EQ(mixtral.rope.style, RopeStyle::interleaved);
}

TEST(ConfigReader, Defaults) {
  EXPECT_EQ(config_of(kQ, drop("qwen3moe.rope.freq_base")).rope.base, 10000.0F);
  // Without expert_feed_forward_length, feed_forward_length is that of all the experts a token uses.
  const Edit fallback = both(drop("qwen3moe.expert_feed_forward_length"), set_u32("qwen3moe.feed_forward_length", 64));
  EXPECT_EQ(config_of(kQ, fallback).experts.d_ff, kTinyWidth);
  const Edit shared = both(drop("qwen2moe.expert_shared_feed_forward_length"),
                           set_u32("qwen2moe.feed_forward_length", kTinySharedWidth));
  EXPECT_EQ(config_of("qwen2moe", shared).experts.d_ff_shared, kTinySharedWidth);
}

TEST(ConfigReader, Overrides) {
  EXPECT_TRUE(config_of("qwen2moe", set("qwen2moe.expert_weights_norm", true)).experts.rule.renormalize);
  EXPECT_EQ(config_of(kQ, set("qwen3moe.expert_weights_scale", 2.5F)).experts.rule.scale, 2.5F);
  EXPECT_EQ(config_of(kQ, set("qwen3moe.expert_weights_scale", 0.0F)).experts.rule.scale, 1.0F);
  EXPECT_EQ(config_of(kQ, set_u32("qwen3moe.expert_gating_func", 2)).experts.rule.score, Score::sigmoid);
  const Edit groups = both(set_u32("qwen3moe.expert_group_count", 3), set_u32("qwen3moe.expert_group_used_count", 2));
  EXPECT_EQ(config_of(kQ, groups).experts.rule.n_groups, 3);
  EXPECT_EQ(config_of(kQ, groups).experts.rule.top_groups, 2);
}

TEST(ConfigReader, RopeScaling) {
  const RopeConfig linear = config_of("llama", set("llama.rope.scaling.factor", 4.0F)).rope;
  EXPECT_EQ(linear.scaling, RopeScaling::linear);
  EXPECT_EQ(linear.factor, 4.0F);
  const Edit yarn = [](ModelFixture& m) {
    m.set("qwen3moe.rope.scaling.type", std::string("yarn"));
    m.set("qwen3moe.rope.scaling.factor", 4.0F);
    m.set("qwen3moe.rope.scaling.original_context_length", std::uint32_t{2048});
    m.set("qwen3moe.rope.scaling.yarn_beta_fast", 16.0F);
  };
  const RopeConfig rope = config_of(kQ, yarn).rope;
  EXPECT_EQ(rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(rope.original_context, 2048);
  EXPECT_EQ(rope.beta_fast, 16.0F);
  EXPECT_EQ(rope.beta_slow, 1.0F);
  const Edit off = both(set_text("qwen3moe.rope.scaling.type", "none"), set("qwen3moe.rope.scaling.factor", 4.0F));
  EXPECT_EQ(config_of(kQ, off).rope.scaling, RopeScaling::none);
  EXPECT_EQ(config_of(kQ, off).rope.factor, 1.0F);
}

TEST(ConfigReader, AcceptsWhatMeansTheSame) {
  expect_accepted(kQ, set("qwen3moe.block_count", std::uint8_t{2}));
  expect_accepted(kQ, set("qwen3moe.block_count", std::int64_t{2}));
  expect_accepted(kQ, set("qwen3moe.rope.freq_base", 1e6));  // f64
  expect_accepted(kQ, set("qwen3moe.attention.head_count", U32s{4, 4}));
  expect_accepted(kQ, set_u32("qwen3moe.leading_dense_block_count", 0));
  expect_accepted(kQ, set_u32("qwen3moe.expert_shared_count", 0));
  expect_accepted(kQ, set_u32("qwen3moe.expert_group_count", 1));
  expect_accepted(kQ, set("qwen3moe.logit_scale", 1.0F));
  expect_accepted(kQ, set_u32("qwen3moe.attention.sliding_window", 8192));
  expect_accepted(kQ, set_u32("qwen3moe.vocab_size", kTinyVocab));
  expect_accepted(kQ, set_u32("qwen3moe.rope.dimension_count", 16));
  expect_accepted(kQ, set_text("general.type", "model"));
  expect_accepted(kQ, drop("general.name"));
  expect_accepted("llama", set("llama.rope.scale_linear", 1.0F));
}

TEST(ConfigReader, RefusesGeneralFaults) {
  expect_refusals({
      {kQ, drop("general.architecture"), "general.architecture is missing"},
      {kQ, set_u32("general.architecture", 3), "general.architecture has the type u32, must be string"},
      {kQ, set_text("general.architecture", "gem\nma"),
       "general.architecture is 'gem\\x0ama', supported: llama, olmoe"},
      {kQ, set_text("general.architecture", "llama"), "llama.block_count is missing"},
      {kQ, set_text("general.type", "adapter"), "general.type is 'adapter'"},
      {kQ, set_u32("general.name", 1), "general.name has the type u32"},
      {kQ, set_u32("general.quantization_version", 1), "general.quantization_version is 1, must be 2"},
      {kQ, [](ModelFixture& m) { m.tensors.clear(); }, "no tensors"},
  });
}

TEST(ConfigReader, RefusesMissingAndMistypedKeys) {
  expect_refusals({
      {kQ, drop("qwen3moe.block_count"), "qwen3moe.block_count is missing"},
      {kQ, drop("qwen3moe.context_length"), "qwen3moe.context_length is missing"},
      {kQ, drop("qwen3moe.embedding_length"), "qwen3moe.embedding_length is missing"},
      {kQ, drop("qwen3moe.attention.head_count"), "qwen3moe.attention.head_count is missing"},
      {kQ, drop("qwen3moe.attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon is missing"},
      {kQ, drop("qwen3moe.expert_count"), "qwen3moe.expert_count is missing: not a mixture-of-experts model"},
      {kQ, drop("qwen3moe.expert_used_count"), "qwen3moe.expert_used_count is missing"},
      {kQ, drop("qwen3moe.expert_feed_forward_length"), "qwen3moe.expert_feed_forward_length is missing"},
      {"llama", drop("llama.expert_count"), "not a mixture-of-experts model"},
      {"llama", drop("llama.feed_forward_length"), "llama.expert_feed_forward_length is missing"},
      {"qwen2moe", drop("qwen2moe.expert_shared_feed_forward_length"), "expert_shared_feed_forward_length is missing"},
      {kQ, set("qwen3moe.block_count", 2.0F), "qwen3moe.block_count has the type f32, must be an integer"},
      {kQ, set_text("qwen3moe.block_count", "2"), "qwen3moe.block_count has the type string, must be an integer"},
      {kQ, set("qwen3moe.block_count", true), "qwen3moe.block_count has the type bool, must be an integer"},
      {kQ, set("qwen3moe.block_count", U32s{2}), "qwen3moe.block_count has the type array of u32"},
      {kQ, set_u32("qwen3moe.rope.freq_base", 10000), "qwen3moe.rope.freq_base has the type u32, must be f32"},
      {kQ, set_u32("qwen3moe.expert_weights_norm", 1), "expert_weights_norm has the type u32, must be bool"},
      {kQ, set("qwen3moe.expert_used_count", 2.0), "expert_used_count has the type f64, must be an integer"},
      {kQ, set("qwen3moe.attention.head_count", Strings{"4", "4"}), "head_count has the type array of string"},
      {kQ, set_u32("qwen3moe.rope.scaling.type", 1), "rope.scaling.type has the type u32, must be string"},
  });
}

TEST(ConfigReader, RefusesValuesOutOfRange) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  expect_refusals({
      {kQ, set_u32("qwen3moe.block_count", 0), "qwen3moe.block_count is 0, must be 1 to 1024"},
      {kQ, set_u32("qwen3moe.block_count", 4'000'000'000), "qwen3moe.block_count is 4000000000"},
      {kQ, set("qwen3moe.block_count", std::int32_t{-1}), "qwen3moe.block_count is -1"},
      {kQ, set("qwen3moe.block_count", std::uint64_t{1} << 63), "qwen3moe.block_count is 9223372036854775808"},
      {kQ, set_u32("qwen3moe.embedding_length", 0), "qwen3moe.embedding_length is 0"},
      {kQ, set_u32("qwen3moe.embedding_length", 1 << 21), "qwen3moe.embedding_length is 2097152, must be 1 to 1048576"},
      {kQ, set_u32("qwen3moe.context_length", 0), "qwen3moe.context_length is 0"},
      {kQ, set("qwen3moe.context_length", std::uint64_t{1} << 40), "qwen3moe.context_length is 1099511627776"},
      {kQ, set_u32("qwen3moe.attention.head_count", 0), "attention.head_count is 0"},
      {kQ, set_u32("qwen3moe.attention.head_count_kv", 3), "head_count_kv is 3, must divide the 4 query heads"},
      {kQ, set_u32("qwen3moe.attention.head_count_kv", 0), "head_count_kv is 0"},
      {kQ, set("qwen3moe.attention.head_count_kv", U32s{2, 4}), "is 2 in layer 0 and 4 in layer 1"},
      {kQ, set("qwen3moe.attention.head_count", U32s{4, 4, 4}), "has 3 values, must have one for each of 2 layers"},
      {kQ, set_u32("qwen3moe.attention.value_length", 16), "value_length is 16, must equal the key length 32"},
      {kQ, set_u32("qwen3moe.attention.key_length", 1 << 20), "key_length is 1048576"},
      {"olmoe", set_u32("olmoe.embedding_length", 66), "must be a multiple of the 4 heads"},
      {kQ, set("qwen3moe.attention.layer_norm_rms_epsilon", 0.0F),
       "layer_norm_rms_epsilon is 0, must be above 0 and below 1"},
      {kQ, set("qwen3moe.attention.layer_norm_rms_epsilon", kNan), "layer_norm_rms_epsilon is nan"},
      {kQ, set("qwen3moe.attention.layer_norm_rms_epsilon", -1e-6F), "layer_norm_rms_epsilon is -"},
      {kQ, set("qwen3moe.attention.layer_norm_rms_epsilon", 1.0F), "layer_norm_rms_epsilon is 1"},
      {kQ, set("qwen3moe.attention.layer_norm_rms_epsilon", 1e-300), "layer_norm_rms_epsilon is 1e-300"},
      {kQ, set("qwen3moe.rope.freq_base", kInf), "rope.freq_base is inf, must be finite and above 0"},
      {kQ, set("qwen3moe.rope.freq_base", 1e300), "rope.freq_base is 1e+300"},
      {kQ, set("qwen3moe.rope.freq_base", 0.0F), "rope.freq_base is 0"},
      {kQ, set_u32("qwen3moe.rope.dimension_count", 15), "rope.dimension_count is 15, must be even"},
      {kQ, set_u32("qwen3moe.rope.dimension_count", 64), "rope.dimension_count is 64, must be 2 to 32"},
      {kQ, set_u32("qwen3moe.rope.dimension_count", 0), "rope.dimension_count is 0"},
      {kQ, set_text("qwen3moe.rope.scaling.type", "longrope"),
       "rope.scaling.type is 'longrope', supported: none, linear, yarn"},
      {kQ, set("qwen3moe.rope.scaling.factor", 0.0F), "rope.scaling.factor is 0"},
      {kQ, set("qwen3moe.rope.scaling.factor", kNan), "rope.scaling.factor is nan"},
      {kQ, set_text("qwen3moe.rope.scaling.type", "yarn"), "rope.scaling.factor is missing"},
      {kQ, set("qwen3moe.rope.scaling.attn_factor", kInf), "rope.scaling.attn_factor is inf"},
      {kQ, set("qwen3moe.rope.scaling.yarn_log_multiplier", 0.1F), "yarn_log_multiplier is 0.1"},
  });
}

TEST(ConfigReader, RefusesExpertFaults) {
  expect_refusals({
      {kQ, set_u32("qwen3moe.expert_count", 0), "qwen3moe.expert_count is 0: not a mixture-of-experts model"},
      {kQ, set_u32("qwen3moe.expert_count", 5000), "expert_count is 5000, must be 0 to 4096"},
      {kQ, set_u32("qwen3moe.expert_used_count", 0), "expert_used_count is 0, must be 1 to 6"},
      {kQ, set_u32("qwen3moe.expert_used_count", 7), "expert_used_count is 7, must be 1 to 6"},
      {kQ, set_u32("qwen3moe.expert_group_count", 4), "expert_group_count is 4, must divide the 6 experts"},
      {kQ, set_u32("qwen3moe.expert_group_count", 3), "expert_group_used_count is missing"},
      {kQ, both(set_u32("qwen3moe.expert_group_count", 6), set_u32("qwen3moe.expert_group_used_count", 1)),
       "these groups hold 1 experts, fewer than the 2 used"},
      {kQ, both(set_u32("qwen3moe.expert_group_count", 3), set_u32("qwen3moe.expert_group_used_count", 4)),
       "expert_group_used_count is 4, must be 0 to 3"},
      {kQ, set("qwen3moe.expert_weights_scale", std::numeric_limits<float>::infinity()), "expert_weights_scale is inf"},
      {kQ, set("qwen3moe.expert_weights_scale", -1.0F), "expert_weights_scale is -1"},
      {kQ, set_u32("qwen3moe.expert_gating_func", 9), "expert_gating_func is 9, must be 0 to 4"},
      {kQ, set_u32("qwen3moe.expert_feed_forward_length", 1 << 21), "expert_feed_forward_length is 2097152"},
      {kQ, set_u32("qwen3moe.expert_shared_count", 1), "expert_shared_count is 1, must be 0"},
      {"qwen2moe", set_u32("qwen2moe.expert_shared_count", 2), "expert_shared_count is 2, must be 1"},
      {kQ, both(drop("qwen3moe.expert_feed_forward_length"), set_u32("qwen3moe.feed_forward_length", 65)),
       "feed_forward_length is 65, must be a multiple of the 2 experts used"},
  });
}

TEST(ConfigReader, RefusesFeaturesItWouldHaveToIgnore) {
  expect_refusals({
      {kQ, set_u32("qwen3moe.leading_dense_block_count", 1), "leading_dense_block_count is 1"},
      {kQ, set_u32("qwen3moe.interleave_moe_layer_step", 2), "interleave_moe_layer_step is 2"},
      {kQ, set("qwen3moe.logit_scale", 0.5F), "logit_scale is 0.5"},
      {kQ, set("qwen3moe.attn_logit_softcapping", 50.0F), "attn_logit_softcapping is 50"},
      {kQ, set("olmoe.attention.clamp_kqv", 8.0F), "(accepted)"},  // another architecture's key
      {"olmoe", set("olmoe.attention.clamp_kqv", 8.0F), "attention.clamp_kqv is 8"},
      {kQ, set("qwen3moe.attention.scale", 0.5F), "attention.scale is 0.5"},
      {kQ, set("qwen3moe.attention.causal", false), "attention.causal is false"},
      {kQ, set_u32("qwen3moe.attention.sliding_window", 4096), "attention.sliding_window is 4096"},
  });
}

}  // namespace
}  // namespace conclave::testing
