// Whole conversions: where every number of a checkpoint goes.
#include "convert/convert.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/error.h"
#include "convert/checkpoint_fixture.h"
#include "gguf/file.h"
#include "model/description.h"
#include "model/model_fixture.h"
#include "quant/codec.h"

namespace conclave {
namespace {

using namespace testing;
using Change = std::function<void(CheckpointFixture&)>;

class Convert : public ::testing::Test {
 protected:
  gguf::File convert(const CheckpointFixture& fixture, std::size_t shards = 1, const char* format = "") {
    fixture.write(dir_.path() / "hf", shards);
    ThreadPool pool(2);
    written_ = convert_model(
        {.folder = dir_.path() / "hf", .target = dir_.path() / "out.gguf", .format = find_model_format(format)}, pool,
        {});
    return gguf::File::open(dir_.path() / "out.gguf");
  }

  std::string refusal(const Change& edit, const std::string& architecture = "Qwen3MoeForCausalLM") {
    CheckpointFixture fixture = tiny_checkpoint(architecture);
    edit(fixture);
    try {
      convert(fixture);
    } catch (const Error& error) {
      EXPECT_FALSE(std::filesystem::exists(dir_.path() / "out.gguf"));
      return error.what();
    }
    return "";
  }

  static std::vector<float> values(const gguf::File& file, const std::string& name) {
    const gguf::TensorInfo* tensor = file.find_tensor(name);
    if (tensor == nullptr) {
      ADD_FAILURE() << "no tensor " << name;
      return {};
    }
    std::vector<float> out(static_cast<std::size_t>(elements_of(tensor->dims)));
    decode(*tensor->type->dtype, file.data(*tensor), out);
    return out;
  }

  // `count` elements of `name` from `first` on are those of the checkpoint's tensor `hf` from `hf_first` on.
  static void expect_same(const std::vector<float>& held, std::int64_t first, const std::string& hf,
                          std::int64_t hf_first, std::int64_t count) {
    ASSERT_LE(first + count, static_cast<std::int64_t>(held.size()));
    for (std::int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(held[static_cast<std::size_t>(first + i)], element_of(hf, hf_first + i)) << hf << " " << i;
    }
  }

  TempDir dir_;
  WrittenModel written_;
};

TEST_F(Convert, EveryFamilyPassesTheModelCheck) {
  for (const char* name : {"Qwen3MoeForCausalLM", "Qwen2MoeForCausalLM", "MixtralForCausalLM", "OlmoeForCausalLM"}) {
    const gguf::File file = convert(tiny_checkpoint(name));
    const ModelDescription model = describe_model(file);
    EXPECT_EQ(model.config.n_vocab, kHfVocab);
    EXPECT_EQ(model.config.name, "hf");
    EXPECT_EQ(model.config.attention.qkv_bias, std::string(name) == "Qwen2MoeForCausalLM");
    EXPECT_EQ(file.find("general.file_type")->as_u64(), 32U);  // bf16, as it was
    EXPECT_EQ(file.find_tensor("blk.1.ffn_up_exps.weight")->type->dtype, DType::bf16);
    EXPECT_EQ(file.find_tensor("blk.1.ffn_gate_inp.weight")->type->dtype, DType::f32);
    EXPECT_EQ(file.find_tensor("output_norm.weight")->type->dtype, DType::f32);
    EXPECT_EQ(written_.file_bytes, file.file_bytes());
  }
}

TEST_F(Convert, ExpertsAreStacked) {
  const std::string layer = "model.layers.1.";
  constexpr std::int64_t kOne = kHfWidth * kHfModel;
  for (const bool mixtral : {false, true}) {
    const gguf::File file = convert(tiny_checkpoint(mixtral ? "MixtralForCausalLM" : "Qwen3MoeForCausalLM"), 3);
    for (const auto& [name, hf] :
         std::initializer_list<std::pair<std::string, std::string>>{{"gate", mixtral ? "w1" : "gate_proj"},
                                                                    {"up", mixtral ? "w3" : "up_proj"},
                                                                    {"down", mixtral ? "w2" : "down_proj"}}) {
      const auto held = values(file, "blk.1.ffn_" + name + "_exps.weight");
      for (std::int64_t e = 0; e < kHfExperts; ++e) {
        expect_same(
            held, e * kOne,
            layer + (mixtral ? "block_sparse_moe" : "mlp") + ".experts." + std::to_string(e) + "." + hf + ".weight", 0,
            kOne);
      }
    }
    expect_same(values(file, "blk.1.ffn_norm.weight"), 0, layer + "post_attention_layernorm.weight", 0, kHfModel);
    expect_same(values(file, "output.weight"), 0, "lm_head.weight", 0, kHfVocab * kHfModel);
  }
}

TEST_F(Convert, ExpertsInOneTensorAreTakenApart) {
  CheckpointFixture fixture = tiny_checkpoint("Qwen3MoeForCausalLM");
  std::erase_if(fixture.tensors, [](const auto& item) { return item.first.find(".experts.") != std::string::npos; });
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    fixture.tensors[layer + "mlp.experts.gate_up_proj"] = {"BF16", {kHfExperts, 2 * kHfWidth, kHfModel}};
    fixture.tensors[layer + "mlp.experts.down_proj"] = {"BF16", {kHfExperts, kHfModel, kHfWidth}};
  }
  const gguf::File file = convert(fixture);
  constexpr std::int64_t kOne = kHfWidth * kHfModel;
  for (std::int64_t e = 0; e < kHfExperts; ++e) {
    const std::string fused = "model.layers.0.mlp.experts.gate_up_proj";
    expect_same(values(file, "blk.0.ffn_gate_exps.weight"), e * kOne, fused, 2 * e * kOne, kOne);
    expect_same(values(file, "blk.0.ffn_up_exps.weight"), e * kOne, fused, (2 * e + 1) * kOne, kOne);
  }
  expect_same(values(file, "blk.1.ffn_down_exps.weight"), 0, "model.layers.1.mlp.experts.down_proj", 0,
              kHfExperts * kOne);
}

TEST_F(Convert, RotatedRowsOfMixtralGoSideBySide) {
  const gguf::File file = convert(tiny_checkpoint("MixtralForCausalLM"));
  for (const auto& [name, hf, heads] :
       {std::tuple<std::string, std::string, std::int64_t>{"q", "q_proj", kHfHeads}, {"k", "k_proj", kHfKvHeads}}) {
    const auto held = values(file, "blk.1.attn_" + name + ".weight");
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t pair = 0; pair < kHfHead / 2; ++pair) {
        for (std::int64_t side : {0, 1}) {
          expect_same(held, (head * kHfHead + 2 * pair + side) * kHfModel, "model.layers.1.self_attn." + hf + ".weight",
                      (head * kHfHead + side * kHfHead / 2 + pair) * kHfModel, kHfModel);
        }
      }
    }
  }
  expect_same(values(file, "blk.1.attn_v.weight"), 0, "model.layers.1.self_attn.v_proj.weight", 0,
              kHfKvHeads * kHfHead * kHfModel);
  const gguf::File qwen = convert(tiny_checkpoint("Qwen3MoeForCausalLM"));
  expect_same(values(qwen, "blk.1.attn_q.weight"), 0, "model.layers.1.self_attn.q_proj.weight", 0,
              kHfHeads * kHfHead * kHfModel);
}

TEST_F(Convert, TiedEmbeddings) {
  CheckpointFixture fixture = tiny_checkpoint("Qwen3MoeForCausalLM");
  fixture.config["tie_word_embeddings"] = true;
  EXPECT_EQ(convert(fixture).find_tensor("output.weight"), nullptr);  // lm_head.weight is the embedding again
  fixture.tensors.erase("lm_head.weight");
  EXPECT_EQ(convert(fixture).find_tensor("output.weight"), nullptr);
  fixture.config.erase("tie_word_embeddings");  // the tensors tell
  EXPECT_EQ(convert(fixture).find_tensor("output.weight"), nullptr);
  // A family whose files always have a head gets the embedding twice.
  CheckpointFixture other = tiny_checkpoint("OlmoeForCausalLM");
  other.config["tie_word_embeddings"] = true;
  other.tensors.erase("lm_head.weight");
  expect_same(values(convert(other), "output.weight"), 0, "model.embed_tokens.weight", 0, kHfVocab * kHfModel);
}

TEST_F(Convert, TypesAsAsked) {
  CheckpointFixture fixture = tiny_checkpoint("Qwen2MoeForCausalLM");
  fixture.tensors["model.layers.0.mlp.experts.1.up_proj.weight"].dtype = "F32";
  EXPECT_EQ(convert(fixture).find_tensor("blk.0.ffn_up_exps.weight")->type->dtype, DType::f32);  // holds both
  for (const ModelFormat& format : all_model_formats()) {
    const gguf::File file = convert(fixture, 1, format.name.data());
    describe_model(file);
    EXPECT_EQ(file.find("general.file_type")->as_u64(), format.file_type);
    EXPECT_EQ(file.find_tensor("blk.0.ffn_gate_inp.weight")->type->dtype, DType::f32);
  }
  EXPECT_EQ(convert(fixture, 1, "q8_0").find_tensor("blk.0.attn_q.weight")->type->dtype, DType::q8_0);
  convert(fixture, 1, "Q4_K_M");
  EXPECT_FALSE(written_.notes.empty());  // rows of 32 do not fill blocks of 256
}

TEST_F(Convert, RefusesTensorsThatDoNotMakeTheModel) {
  const std::string expert = "model.layers.1.mlp.experts.2.up_proj.weight";
  const std::pair<Change, std::string> cases[] = {
      {[&](CheckpointFixture& f) { f.tensors.erase(expert); }, "tensor " + expert + " (or"},
      {[&](CheckpointFixture& f) { f.tensors.erase("lm_head.weight"); }, "tensor lm_head.weight is missing"},
      {[&](CheckpointFixture& f) {
         f.tensors[expert].dims = {kHfModel, kHfWidth};
       },
       "is [32, 64], must be [64, 32]"},
      {[&](CheckpointFixture& f) { f.tensors["model.embed_tokens.weight"].dims[0] = 21; }, "must be [20, 32]"},
      {[&](CheckpointFixture& f) {
         f.tensors["model.layers.1.self_attn.q_proj.bias"] = {"BF16", {32}};
       },
       "is not one that qwen3moe models have"},
      {[&](CheckpointFixture& f) {
         f.tensors["model.layers.2.input_layernorm.weight"] = {"BF16", {32}};
       },
       "is not one that qwen3moe models have"},
      {[&](CheckpointFixture& f) {
         f.tensors["model.norm.weight"] = {"I32", {32}};
       },
       "is I32, supported: F32"},
      // What only the model check finds.
      {[&](CheckpointFixture& f) { f.tokenizer["model"]["merges"].push_back("a zz"); }, "'zz' is no token"},
  };
  for (const auto& [edit, part] : cases) {
    const std::string said = refusal(edit);
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  }
  EXPECT_EQ(refusal([](CheckpointFixture& f) { f.tensors["model.rotary_emb.inv_freq"] = {"F32", {4}}; }), "");
}

}  // namespace
}  // namespace conclave
