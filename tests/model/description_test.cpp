#include "model/description.h"

#include <gtest/gtest.h>

#include "model_fixture.h"
#include "refusal.h"

namespace conclave::testing {
namespace {

struct Counted {
  ModelSize size;
  std::vector<FormatUse> formats;
  std::size_t n_tensors;
};

Counted count(const ModelFixture& model) {
  const TempDir dir;
  model.write(dir.path() / "m.gguf");
  const gguf::File file = gguf::File::open(dir.path() / "m.gguf");
  ModelDescription description = describe_model(file);
  return {description.size, description.formats, file.tensors().size()};
}

constexpr std::int64_t kEmbedding = kTinyVocab * kTinyModel;
constexpr std::int64_t kOneExpert = 3 * kTinyWidth * kTinyModel;

// qwen3moe: norms, q k v out at d_head 32, q and k norms, router.
constexpr std::int64_t kDenseLayer =
    2 * kTinyModel + (2 * 128 + 2 * 64) * kTinyModel + 2 * 32 + kTinyExperts * kTinyModel;

TEST(Description, CountsParameters) {
  const Counted c = count(tiny_model("qwen3moe"));
  const std::int64_t dense = kTinyLayers * kDenseLayer + kTinyModel + kEmbedding;  // with the output norm and the head
  EXPECT_EQ(c.size.n_params, dense + kEmbedding + kTinyLayers * kTinyExperts * kOneExpert);
  EXPECT_EQ(c.size.n_active_params, dense + kTinyModel + kTinyLayers * kTinyTopK * kOneExpert);
}

TEST(Description, TiedEmbeddingCountsAsTheHead) {
  ModelFixture model = tiny_model("qwen3moe");
  model.drop_tensor("output.weight");
  const Counted c = count(model);
  const std::int64_t dense = kTinyLayers * kDenseLayer + kTinyModel + kEmbedding;
  EXPECT_EQ(c.size.n_params, dense + kTinyLayers * kTinyExperts * kOneExpert);
  EXPECT_EQ(c.size.n_active_params, dense + kTinyLayers * kTinyTopK * kOneExpert);
}

TEST(Description, SharedExpertIsAlwaysActive) {
  const Counted c = count(tiny_model("qwen2moe"));
  const std::int64_t idle = kTinyLayers * (kTinyExperts - kTinyTopK) * kOneExpert + (kTinyVocab - 1) * kTinyModel;
  EXPECT_EQ(c.size.n_params - c.size.n_active_params, idle);
}

TEST(Description, CountsBytes) {
  const Counted c = count(tiny_model("qwen3moe"));
  EXPECT_EQ(c.size.kv_bytes_per_token, static_cast<std::uint64_t>(kTinyLayers * 2 * kTinyKvHeads * 32 * 2));
  std::uint64_t bytes = 0;
  std::int64_t n_params = 0;
  std::int64_t n_tensors = 0;
  for (std::size_t i = 0; i < c.formats.size(); ++i) {
    bytes += c.formats[i].bytes;
    n_params += c.formats[i].n_params;
    n_tensors += c.formats[i].n_tensors;
    if (i > 0) {
      EXPECT_LE(c.formats[i].bytes, c.formats[i - 1].bytes);
    }
  }
  EXPECT_EQ(bytes, c.size.weight_bytes);
  EXPECT_EQ(n_params, c.size.n_params);
  EXPECT_EQ(static_cast<std::size_t>(n_tensors), c.n_tensors);
}

TEST(Description, OneExpertWithoutItsDimension) {
  ModelFixture model = tiny_model("qwen3moe");
  model.set("qwen3moe.expert_count", std::uint32_t{1});
  model.set("qwen3moe.expert_used_count", std::uint32_t{1});
  for (FixtureTensor& tensor : model.tensors) {
    if (tensor.name.find("_exps") != std::string::npos) tensor.dims.erase(tensor.dims.begin());
    if (tensor.name.find("ffn_gate_inp") != std::string::npos) tensor.dims[0] = 1;
  }
  const Counted c = count(model);
  EXPECT_EQ(c.size.n_params - c.size.n_active_params, (kTinyVocab - 1) * kTinyModel);
}

TEST(Description, SplitSet) {
  const TempDir dir;
  tiny_model("olmoe").write(dir.path() / "m.gguf", {.max_part_bytes = 20'000});
  std::filesystem::path any_part;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) any_part = entry.path();
  const gguf::File file = gguf::File::open(any_part);
  EXPECT_GT(file.parts(), 2U);
  EXPECT_EQ(describe_model(file).config.architecture, "olmoe");
}

}  // namespace
}  // namespace conclave::testing
