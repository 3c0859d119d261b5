// Is it the right model? Every family against a plain forward pass, and the devices against each other.
#include <gtest/gtest.h>

#include <string>

#include "engine/plain_forward.h"
#include "engine/random_model.h"

namespace conclave::testing {
namespace {

Rows plain_logits(const std::filesystem::path& path, const Tokens& tokens) {
  const gguf::File file = gguf::File::open(path);
  Rows rows;
  for (const Vec& row : PlainForward(file).logits(tokens)) rows.emplace_back(row.begin(), row.end());
  return rows;
}

Rows logits_on(const std::string& device, const std::filesystem::path& path, const Tokens& tokens,
               KvType kv = KvType::f32) {
  const Model model = Model::open(path, {.device = device, .threads = 2});
  Session session(model, {.context = 128, .kv_type = kv});
  return all_logits(session, session.create(), tokens);
}

class FamilyTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Families, FamilyTest, ::testing::ValuesIn(kFamilies));

TEST_P(FamilyTest, F32LogitsAreThoseOfAPlainForwardPass) {
  const RandomModel model(GetParam(), DType::f32);
  const Tokens tokens = random_tokens(70);
  const Rows want = plain_logits(model.path(), tokens);
  EXPECT_LE(worst_error(logits_on("ref", model.path(), tokens), want), 1e-11);
  EXPECT_LE(worst_error(logits_on("cpu", model.path(), tokens), want), 1e-10);
  EXPECT_LE(median_error(logits_on("cpu", model.path(), tokens, KvType::f16), want), 1e-6);
}

// Activations are rounded to int8 for block weights; what that costs adds up over the layers.
void expect_near(const std::string& family, DType type, double bound) {
  const RandomModel model(family, type);
  const Tokens tokens = random_tokens(9);
  EXPECT_LE(median_error(logits_on("cpu", model.path(), tokens), logits_on("ref", model.path(), tokens)), bound)
      << family << " " << dtype_info(type).name;
}

TEST_P(FamilyTest, BlockWeightsGiveNearlyTheSameOnBothDevices) {
  expect_near(GetParam(), DType::q8_0, 2e-3);
  expect_near(GetParam(), DType::q4_k, 2e-3);
}

TEST(Logits, OfEveryFormatAreNearlyTheSameOnBothDevices) {
  expect_near("qwen3moe", DType::f16, 1e-10);
  expect_near("qwen3moe", DType::bf16, 1e-10);
  for (const DType type : {DType::q4_0, DType::q5_k, DType::q6_k, DType::mxfp4}) expect_near("qwen3moe", type, 2e-3);
}

TEST_P(FamilyTest, ScaledPositionsAreThoseOfAPlainForwardPass) {
  for (const std::string scaling : {"linear", "yarn"}) {
    ModelFixture fixture = tiny_model(GetParam());
    const std::string a = std::string(GetParam()) + ".rope.scaling.";
    fixture.set(a + "type", scaling);
    fixture.set(a + "factor", 4.0F);
    fixture.set(a + "original_context_length", std::uint32_t{16});
    retype_blocks(fixture, DType::f32);
    const TempDir folder;
    write_random(fixture, folder.path() / "m.gguf", 2);
    const Tokens tokens = random_tokens(40);
    EXPECT_LE(
        worst_error(logits_on("cpu", folder.path() / "m.gguf", tokens), plain_logits(folder.path() / "m.gguf", tokens)),
        1e-10)
        << scaling;
  }
}

TEST(Logits, OfASplitPackedAndTiedFileAreTheSame) {
  ModelFixture fixture = tiny_model("qwen3moe");
  retype_blocks(fixture, DType::f32);
  fixture.drop_tensor("output.weight");
  const TempDir folder;
  const Tokens tokens = random_tokens(9);
  write_random(fixture, folder.path() / "whole.gguf", 3);
  const Rows whole = logits_on("cpu", folder.path() / "whole.gguf", tokens);
  EXPECT_LE(worst_error(whole, plain_logits(folder.path() / "whole.gguf", tokens)), 1e-10);

  write_random(fixture, folder.path() / "split.gguf", 3, {.max_part_bytes = 120'000});
  int n_parts = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (!entry.path().filename().string().starts_with("split-")) continue;
    ++n_parts;
    EXPECT_EQ(logits_on("cpu", entry.path(), tokens), whole) << entry.path();
  }
  EXPECT_GE(n_parts, 2);

  write_random(fixture, folder.path() / "packed.gguf", 3, {.alignment = 8});
  EXPECT_EQ(logits_on("cpu", folder.path() / "packed.gguf", tokens), whole);
}

TEST(Logits, UseTheFrequencyFactorsOfTheFile) {
  ModelFixture fixture = tiny_model("llama");
  retype_blocks(fixture, DType::f32);
  const TempDir folder;
  const Tokens tokens = random_tokens(30);
  const auto logits_with = [&](DType type, float factor) {
    ModelFixture own = fixture;
    own.tensors.push_back({"rope_freqs.weight", type, {8}});
    test::Rng rng(4);
    own.write(folder.path() / "m.gguf", {}, [&](const FixtureTensor& t, std::vector<std::byte>& bytes) {
      if (t.name != "rope_freqs.weight") return random_weights(t, bytes, rng);
      encode(t.type, std::vector<float>(8, factor), bytes);
    });
    return logits_on("cpu", folder.path() / "m.gguf", tokens);
  };
  const Rows ones = logits_with(DType::f32, 1.0F);
  EXPECT_EQ(logits_with(DType::f16, 1.0F), ones);
  const Rows twos = logits_with(DType::f32, 2.0F);
  EXPECT_GT(worst_error(twos, ones), 1e-4);
  // All factors 2 is a linear scaling by 2.
  fixture.set("llama.rope.scaling.type", std::string("linear"));
  fixture.set("llama.rope.scaling.factor", 2.0F);
  EXPECT_LE(worst_error(logits_with(DType::f32, 1.0F), twos), 1e-10);
}

}  // namespace
}  // namespace conclave::testing
