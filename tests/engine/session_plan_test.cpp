#include "engine/session_plan.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace conclave {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

ModelConfig qwen3_30b() {
  ModelConfig c{.n_layers = 48, .d_model = 2048, .n_vocab = 151936, .n_context = 40960, .norm_eps = 1e-6F};
  c.attention = {.n_heads = 32, .n_kv_heads = 4, .d_head = 128};
  c.rope = {.n_dims = 128};
  c.experts = {.n_experts = 128, .d_ff = 768, .rule = {.top_k = 8}};
  return c;
}

std::string refusal(const SessionOptions& options, std::optional<std::int64_t> available = std::nullopt) {
  try {
    plan_session(qwen3_30b(), options, available);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SessionPlan, SizesTheCacheFromTheContext) {
  const SessionPlan plan = plan_session(qwen3_30b(), {.context = 40960, .max_sequences = 2}, std::nullopt);
  EXPECT_EQ(plan.kv.bytes, std::int64_t{2} * 40960 * 48 * 2 * 4 * 128 * 2);
  const SessionPlan rounded = plan_session(qwen3_30b(), {.context = 65, .kv_type = KvType::q8_0}, std::nullopt);
  EXPECT_EQ(rounded.kv.bytes, std::int64_t{128} * 48 * 2 * 4 * 128 / 32 * 34);
  EXPECT_EQ(plan_session(qwen3_30b(), {}, std::nullopt).kv.options.context, 4096);
}

TEST(SessionPlan, ActivationsOfAFullChunkAreSmall) {
  const SessionPlan plan = plan_session(qwen3_30b(), {.context = 40960, .max_sequences = 8}, std::nullopt);
  EXPECT_EQ(plan.workspace.max_tokens, 512);
  EXPECT_EQ(plan.workspace.max_out, 64);
  EXPECT_LT(plan.workspace_bytes, 160 * kMiB);
}

TEST(SessionPlan, TheUsualChunkIsHalvedWhereMemoryIsShort) {
  const auto chunk = [](const SessionOptions& options, std::optional<std::int64_t> available) {
    return plan_session(qwen3_30b(), options, available, 4096).workspace.max_tokens;
  };
  const std::int64_t whole = plan_session(qwen3_30b(), {}, std::nullopt, 4096).workspace_bytes;
  const std::int64_t half = plan_session(qwen3_30b(), {}, std::nullopt, 2048).workspace_bytes;
  const std::int64_t cache = plan_session(qwen3_30b(), {}, std::nullopt).kv.bytes;
  EXPECT_EQ(chunk({}, std::nullopt), 4096);
  EXPECT_EQ(chunk({}, cache + whole), 4096);
  EXPECT_EQ(chunk({}, cache + whole - 1), 2048);
  EXPECT_EQ(chunk({}, cache + half - 1), 1024);
  EXPECT_THROW(chunk({.chunk = 4096}, cache + whole - 1), Error);  // which was asked for
  EXPECT_THROW(chunk({}, cache), Error);
  EXPECT_EQ(chunk({.context = 700}, std::nullopt), 700);
}

TEST(SessionPlan, WhatDoesNotFitIsRefusedWithTheNumbers) {
  EXPECT_EQ(refusal({.context = 40960, .max_sequences = 4}, 16 * kGiB), "");
  EXPECT_EQ(
      refusal({.context = 40960, .max_sequences = 4}, 8 * kGiB),
      "a context of 40960 tokens for each of 4 sequences needs 15.12 GiB (15.00 GiB for the f16 cache, 118.46 MiB "
      "to compute in), and 8.00 GiB are available; a context of 21504 would fit");
  EXPECT_EQ(refusal({.context = 21504, .max_sequences = 4}, 8 * kGiB), "");
  EXPECT_NE(refusal({.context = 21505, .max_sequences = 4}, 8 * kGiB), "");
  EXPECT_NE(refusal({.context = 4096}, kMiB).find("no context would fit"), std::string::npos);
}

TEST(SessionPlan, OptionsOutOfRangeAreRefused) {
  EXPECT_EQ(refusal({.context = -1}), "the context is -1, must be 1 to 2147483584");
  EXPECT_NE(refusal({.context = std::int64_t{1} << 40}), "");
  EXPECT_EQ(refusal({.max_sequences = 0}), "the number of sequences is 0, must be 1 to 4096");
  EXPECT_EQ(refusal({.chunk = -1}), "the chunk is -1, must be 1 to 8192");
  EXPECT_EQ(refusal({.logit_rows = -4}), "the number of logit rows is -4, must be 1 to 8192");
  EXPECT_NE(refusal({.context = 2147483584, .max_sequences = 4096}, 16 * kGiB), "");
  ModelConfig odd = qwen3_30b();
  odd.attention.d_head = 80;
  EXPECT_THROW(plan_session(odd, {.kv_type = KvType::q8_0}, std::nullopt), Error);
  EXPECT_NO_THROW(plan_session(odd, {}, std::nullopt));
}

}  // namespace
}  // namespace conclave
