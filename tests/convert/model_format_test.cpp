#include "convert/model_format.h"

#include <gtest/gtest.h>

#include <array>

namespace conclave {
namespace {

constexpr std::array<std::int64_t, 2> kMatrix = {512, 256};

DType choose(std::string_view format, FormatFacts facts, std::string_view tensor, std::int64_t row = 256) {
  FormatChooser chooser(*find_model_format(format), facts);
  return chooser.choose(tensor, std::array<std::int64_t, 2>{512, row});
}

std::string layer(int i, const std::string& name) {
  return "blk." + std::to_string(i) + "." + name;
}

TEST(ModelFormat, NamesAreFoundInAnyCase) {
  ASSERT_NE(find_model_format("q4_k_m"), nullptr);
  EXPECT_EQ(find_model_format("q4_k_m"), find_model_format("Q4_K_M"));
  EXPECT_EQ(find_model_format("Bf16")->base, DType::bf16);
  EXPECT_EQ(find_model_format("Q4_K_M")->file_type, 15U);
  EXPECT_EQ(find_model_format("Q2_K"), nullptr);
  EXPECT_EQ(find_model_format(""), nullptr);
}

TEST(ModelFormat, OnlyMatricesAreQuantized) {
  EXPECT_TRUE(is_quantizable("blk.0.ffn_up_exps.weight", std::array<std::int64_t, 3>{8, 64, 32}));
  EXPECT_TRUE(is_quantizable("token_embd.weight", kMatrix));
  EXPECT_FALSE(is_quantizable("output_norm.weight", kMatrix));
  EXPECT_FALSE(is_quantizable("blk.0.ffn_gate_inp.weight", kMatrix));
  EXPECT_FALSE(is_quantizable("blk.0.ffn_gate_inp_shexp.weight", std::array<std::int64_t, 2>{1, 256}));
  EXPECT_FALSE(is_quantizable("blk.0.attn_q.bias", kMatrix));
  EXPECT_FALSE(is_quantizable("rope_freqs.weight", std::array<std::int64_t, 1>{64}));
}

TEST(ModelFormat, ASingleFormatIsTheSameEverywhere) {
  for (const char* name : {"output.weight", "token_embd.weight", "blk.0.attn_v.weight", "blk.0.ffn_down_exps.weight"}) {
    EXPECT_EQ(choose("Q4_K", {.n_layers = 48, .n_experts = 8}, name), DType::q4_k) << name;
  }
}

// The layers of a 48-layer model that have Q6_K in published files of Q4_K_M.
TEST(ModelFormat, Q4KMGivesMoreBitsToTheLayersThatNeedThem) {
  const FormatFacts facts{.n_layers = 48, .n_experts = 128};
  const std::vector<int> more = {0,  1,  2,  3,  4,  5,  8,  11, 14, 17, 20, 23,
                                 26, 29, 32, 35, 38, 41, 42, 43, 44, 45, 46, 47};
  for (int i = 0; i < 48; ++i) {
    const bool has_more = std::find(more.begin(), more.end(), i) != more.end();
    for (const char* name : {"attn_v.weight", "ffn_down_exps.weight"}) {
      EXPECT_EQ(choose("Q4_K_M", facts, layer(i, name)), has_more ? DType::q6_k : DType::q4_k) << i << name;
      EXPECT_EQ(choose("Q5_K_M", facts, layer(i, name)), has_more ? DType::q6_k : DType::q5_k) << i << name;
    }
    for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_output.weight", "ffn_gate_exps.weight"}) {
      EXPECT_EQ(choose("Q4_K_M", facts, layer(i, name)), DType::q4_k);
    }
  }
  EXPECT_EQ(choose("Q4_K_M", facts, "output.weight"), DType::q6_k);
  EXPECT_EQ(choose("Q4_K_M", facts, "token_embd.weight"), DType::q4_k);
  EXPECT_EQ(choose("Q4_K_M", {.n_layers = 48, .n_experts = 128, .has_head = false}, "token_embd.weight"), DType::q6_k);
}

TEST(ModelFormat, EightExpertsGetMoreBitsInAttention) {
  const FormatFacts facts{.n_layers = 32, .n_experts = 8};
  EXPECT_EQ(choose("Q4_K_M", facts, layer(9, "attn_v.weight")), DType::q8_0);
  EXPECT_EQ(choose("Q4_K_M", facts, layer(9, "attn_k.weight")), DType::q8_0);
  EXPECT_EQ(choose("Q4_K_M", facts, layer(9, "attn_output.weight")), DType::q5_k);
  EXPECT_EQ(choose("Q5_K_M", facts, layer(9, "attn_output.weight")), DType::q5_k);
  EXPECT_EQ(choose("Q4_K_M", facts, layer(9, "attn_q.weight")), DType::q4_k);
}

TEST(ModelFormat, TheOtherMixes) {
  const FormatFacts facts{.n_layers = 32, .n_experts = 64};
  EXPECT_EQ(choose("Q4_K_S", facts, layer(3, "attn_v.weight")), DType::q5_k);
  EXPECT_EQ(choose("Q4_K_S", facts, layer(4, "attn_v.weight")), DType::q4_k);
  EXPECT_EQ(choose("Q4_K_S", facts, layer(3, "ffn_down_exps.weight")), DType::q5_k);
  EXPECT_EQ(choose("Q4_K_S", facts, layer(4, "ffn_down_exps.weight")), DType::q4_k);
  EXPECT_EQ(choose("Q5_K_S", facts, layer(0, "attn_v.weight")), DType::q5_k);
  EXPECT_EQ(choose("Q5_K_S", facts, "output.weight"), DType::q6_k);
  EXPECT_EQ(choose("MXFP4_MOE", facts, layer(0, "ffn_down_exps.weight")), DType::mxfp4);
  EXPECT_EQ(choose("MXFP4_MOE", facts, layer(0, "ffn_down_shexp.weight")), DType::q8_0);
  EXPECT_EQ(choose("MXFP4_MOE", facts, "output.weight"), DType::q8_0);
}

TEST(ModelFormat, RowsThatDoNotFillBlocksFallBackAndSaySo) {
  FormatChooser chooser(*find_model_format("Q4_K"), {});
  EXPECT_EQ(chooser.choose("a.weight", kMatrix), DType::q4_k);
  EXPECT_TRUE(chooser.notes().empty());
  EXPECT_EQ(chooser.choose("b.weight", std::array<std::int64_t, 2>{4, 96}), DType::q5_0);
  EXPECT_EQ(chooser.choose("c.weight", std::array<std::int64_t, 2>{4, 96}), DType::q5_0);
  EXPECT_EQ(chooser.choose("d.weight", std::array<std::int64_t, 2>{4, 40}), DType::f16);
  ASSERT_EQ(chooser.notes().size(), 2U);
  EXPECT_EQ(chooser.notes()[0], "d.weight: F16 instead of Q4_K, whose blocks rows of 40 do not fill");
  EXPECT_EQ(chooser.notes()[1], "b.weight and 1 more: Q5_0 instead of Q4_K, whose blocks rows of 96 do not fill");
  EXPECT_EQ(choose("Q5_K", {}, "a.weight", 96), DType::q8_0);
  EXPECT_EQ(choose("Q6_K", {}, "a.weight", 96), DType::q8_0);
  EXPECT_EQ(choose("MXFP4", {}, "a.weight", 48), DType::f16);
  EXPECT_EQ(choose("Q4_K_M", {.n_layers = 8}, "output.weight", 96), DType::q8_0);
}

}  // namespace
}  // namespace conclave
