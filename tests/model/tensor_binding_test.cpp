#include "model/tensor_binding.h"

#include <gtest/gtest.h>

#include "model_fixture.h"
#include "refusal.h"

namespace conclave::testing {
namespace {

TEST(TensorBinding, BindsEveryTensorOfEveryFamily) {
  for (const std::string family : {"qwen3moe", "qwen2moe", "olmoe", "llama"}) {
    SCOPED_TRACE(family);
    const TempDir dir;
    tiny_model(family).write(dir.path() / "m.gguf");
    const gguf::File file = gguf::File::open(dir.path() / "m.gguf");
    const ModelTensors tensors = describe_model(file).tensors;
    EXPECT_EQ(tensors.token_embd, file.find_tensor("token_embd.weight"));
    EXPECT_EQ(tensors.output, file.find_tensor("output.weight"));
    EXPECT_FALSE(tensors.tied());
    ASSERT_EQ(tensors.layers.size(), static_cast<std::size_t>(kTinyLayers));
    const LayerTensors& last = tensors.layers.back();
    EXPECT_EQ(last.attn_q, file.find_tensor("blk.1.attn_q.weight"));
    EXPECT_EQ(last.down, file.find_tensor("blk.1.ffn_down_exps.weight"));
    EXPECT_EQ(last.q_norm, file.find_tensor("blk.1.attn_q_norm.weight"));
    EXPECT_EQ(last.v_bias, file.find_tensor("blk.1.attn_v.bias"));
    EXPECT_EQ(last.shared_router, file.find_tensor("blk.1.ffn_gate_inp_shexp.weight"));
    EXPECT_EQ(last.shared_router != nullptr, family == "qwen2moe");
    EXPECT_EQ(last.q_norm != nullptr, family == "qwen3moe" || family == "olmoe");
  }
}

TEST(TensorBinding, TiedHead) {
  ModelFixture model = tiny_model(kQ);
  model.drop_tensor("output.weight");
  const TempDir dir;
  model.write(dir.path() / "m.gguf");
  const gguf::File file = gguf::File::open(dir.path() / "m.gguf");
  EXPECT_TRUE(describe_model(file).tensors.tied());
  expect_accepted("llama", drop_tensor("output.weight"));
}

TEST(TensorBinding, AcceptsWhatMeansTheSame) {
  expect_accepted("llama", add_tensor("rope_freqs.weight", {8}));
  expect_accepted("qwen2moe", reshape("blk.0.ffn_gate_inp_shexp.weight", {1, kTinyModel}));
  expect_accepted(kQ, retype("blk.0.ffn_gate_inp.weight", DType::bf16));
  expect_accepted(kQ, retype("blk.0.ffn_norm.weight", DType::f16));
  expect_accepted(kQ, retype("token_embd.weight", DType::mxfp4));
}

TEST(TensorBinding, AcceptsQwen2MoeWithoutAnyBias) {
  expect_accepted("qwen2moe", [](ModelFixture& model) {
    for (const char* layer : {"blk.0.", "blk.1."}) {
      for (const char* bias : {"attn_q.bias", "attn_k.bias", "attn_v.bias"})
        drop_tensor(std::string(layer) + bias)(model);
    }
  });
}

TEST(TensorBinding, RefusesMissingTensors) {
  expect_refusals({
      {kQ, drop_tensor("token_embd.weight"), "tensor token_embd.weight is missing"},
      {kQ, drop_tensor("output_norm.weight"), "tensor output_norm.weight is missing"},
      {"olmoe", drop_tensor("output.weight"), "tensor output.weight is missing"},
      {"qwen2moe", drop_tensor("output.weight"), "tensor output.weight is missing"},
      {kQ, drop_tensor("blk.1.attn_norm.weight"), "tensor blk.1.attn_norm.weight is missing"},
      {kQ, drop_tensor("blk.0.attn_v.weight"), "tensor blk.0.attn_v.weight is missing"},
      {kQ, drop_tensor("blk.0.attn_q_norm.weight"), "tensor blk.0.attn_q_norm.weight is missing"},
      {kQ, drop_tensor("blk.1.ffn_gate_inp.weight"), "tensor blk.1.ffn_gate_inp.weight is missing"},
      {kQ, drop_tensor("blk.1.ffn_up_exps.weight"), "tensor blk.1.ffn_up_exps.weight is missing"},
      {"qwen2moe", drop_tensor("blk.1.attn_k.bias"), "tensor blk.1.attn_k.bias is missing"},
      {"qwen2moe", drop_tensor("blk.0.attn_q.bias"), "tensor blk.0.attn_q.bias is missing"},
      {"qwen2moe", drop_tensor("blk.1.ffn_gate_inp_shexp.weight"), "ffn_gate_inp_shexp.weight is missing"},
      {"qwen2moe", drop_tensor("blk.0.ffn_down_shexp.weight"), "tensor blk.0.ffn_down_shexp.weight is missing"},
      {kQ, set_u32("qwen3moe.block_count", 3), "tensor blk.2.attn_norm.weight is missing"},
  });
}

TEST(TensorBinding, RefusesWrongShapes) {
  expect_refusals({
      {kQ, reshape("token_embd.weight", {kTinyVocab - 1, kTinyModel}),
       "tensor token_embd.weight is [19, 64], must be [n_vocab, d_model] = [20, 64]"},
      {kQ, reshape("token_embd.weight", {kTinyModel, 32}), "tensor token_embd.weight is [64, 32]"},
      {kQ, reshape("output.weight", {kTinyVocab, 32}), "tensor output.weight is [20, 32]"},
      {kQ, reshape("blk.0.attn_norm.weight", {1, kTinyModel, 1}), "blk.0.attn_norm.weight is [1, 64, 1]"},
      {kQ, reshape("blk.0.attn_q.weight", {kTinyModel, 128}), "[n_heads*d_head, d_model] = [128, 64]"},
      {kQ, reshape("blk.0.attn_k.weight", {128, kTinyModel}), "blk.0.attn_k.weight is [128, 64]"},
      {kQ, reshape("blk.1.attn_q_norm.weight", {128}), "blk.1.attn_q_norm.weight is [128], must be [d_head] = [32]"},
      {"olmoe", reshape("blk.1.attn_k_norm.weight", {64}), "must be [n_kv_heads*d_head] = [32]"},
      {kQ, reshape("blk.0.ffn_gate_inp.weight", {5, kTinyModel}), "must be [n_experts, d_model] = [6, 64]"},
      {kQ, reshape("blk.0.ffn_gate_exps.weight", {5, kTinyWidth, kTinyModel}),
       "blk.0.ffn_gate_exps.weight is [5, 32, 64]"},
      {kQ, reshape("blk.0.ffn_down_exps.weight", {kTinyExperts, kTinyWidth, kTinyModel}),
       "must be [n_experts, d_model, d_ff] = [6, 64, 32]"},
      {kQ, reshape("blk.0.ffn_up_exps.weight", {kTinyExperts * kTinyWidth, kTinyModel}), "is [192, 64]"},
      {"qwen2moe", reshape("blk.0.attn_q.bias", {65}), "blk.0.attn_q.bias is [65]"},
      {"qwen2moe", reshape("blk.0.ffn_up_shexp.weight", {64, 64}), "must be [d_ff_shared, d_model] = [96, 64]"},
      {"llama", add_tensor("rope_freqs.weight", {16}), "rope_freqs.weight is [16], must be [rope_dims/2] = [8]"},
      {kQ, set_u32("qwen3moe.expert_count", 5), "tensor blk.0.ffn_gate_inp.weight is [6, 64]"},
      {kQ, set_u32("qwen3moe.expert_feed_forward_length", 64), "tensor blk.0.ffn_gate_exps.weight is [6, 32, 64]"},
  });
}

TEST(TensorBinding, RefusesWrongTypes) {
  expect_refusals({
      {kQ, retype("blk.0.attn_norm.weight", DType::q8_0), "blk.0.attn_norm.weight is Q8_0, must be F32, F16 or BF16"},
      {kQ, retype("blk.0.ffn_gate_inp.weight", DType::q4_0), "blk.0.ffn_gate_inp.weight is Q4_0, must be F32"},
      {"qwen2moe", retype("blk.1.attn_v.bias", DType::q8_0), "blk.1.attn_v.bias is Q8_0"},
      {kQ, retype("blk.0.attn_q.weight", DType::i32),
       "blk.0.attn_q.weight is I32, which conclave does not compute with"},
  });
}

TEST(TensorBinding, RefusesUnknownTensors) {
  expect_refusals({
      {kQ, add_tensor("extra.weight", {4}), "tensor extra.weight is not one that qwen3moe models have"},
      {kQ, add_tensor("rope_freqs.weight", {16}), "tensor rope_freqs.weight is not one that qwen3moe"},
      {kQ, add_tensor("blk.0.attn_q.bias", {128}), "tensor blk.0.attn_q.bias is not one"},
      {kQ, add_tensor("blk.2.attn_norm.weight", {64}),
       "blk.2.attn_norm.weight is of layer 2, but qwen3moe.block_count is 2"},
      {kQ, set_u32("qwen3moe.block_count", 1), "is of layer 1, but qwen3moe.block_count is 1"},
      {kQ, add_tensor("blk.99999999999999999999.x", {4}), "not one that qwen3moe"},
      {kQ, add_tensor("blk.00.attn_norm.weight", {64}), "not one that qwen3moe"},
      {"llama", add_tensor("blk.0.ffn_gate.0.weight", {64}), "one tensor per expert"},
      {kQ, add_tensor("blk.0.attn_qkv.weight", {64}), "Q, K and V in one tensor"},
      {kQ, add_tensor("blk.0.ffn_gate_up_exps.weight", {64}), "gate and up in one tensor"},
      {kQ, add_tensor("blk.0.exp_probs_b.bias", {6}), "tensor blk.0.exp_probs_b.bias is not one"},
  });
}

}  // namespace
}  // namespace conclave::testing
