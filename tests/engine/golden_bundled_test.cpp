// The bundled model, decoded to F32, against the logits that transformers computes with the same weights; and its
// tokenizer against the package tokenizers (tools/golden_bundled.py).
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/thread_pool.h"
#include "convert/model_format.h"
#include "convert/quantize.h"
#include "engine/random_model.h"
#include "engine/vocabulary_reader.h"
#include "gguf/file.h"
#include "support/golden_logits.h"

namespace conclave::testing {
namespace {

const char* const kMaster = CONCLAVE_SOURCE_DIR "/models/conclave-tales-18m.q8_0.gguf";

GoldenLogits golden() {
  return read_golden_logits(CONCLAVE_SOURCE_DIR "/tests/golden/bundled/logits.bin");
}

TEST(BundledModel, LogitsInF32AreThoseOfTransformers) {
  const TempDir folder;
  const std::filesystem::path plain = folder.path() / "f32.gguf";
  ThreadPool pool(2);
  quantize_model({.source = kMaster, .target = plain, .format = find_model_format("F32")}, pool, {});
  Session session(Model::open(plain, {.device = "cpu", .threads = 2}), {.context = 256, .kv_type = KvType::f32});
  const GoldenLogits want = golden();
  ASSERT_EQ(want.prompts.size(), 20U);
  for (const GoldenPrompt& prompt : want.prompts) {
    const SequenceId sequence = session.create();
    const Rows all = all_logits(session, sequence, prompt.ids);
    session.drop(sequence);
    Rows rows;
    for (const std::uint32_t position : prompt.positions) rows.push_back(all.at(position));
    EXPECT_LE(worst_error(rows, prompt.logits), kMaxGoldenError) << prompt.text;
  }
}

TEST(BundledModel, TokenizesAsThePackageTokenizersDoes) {
  const gguf::File file = gguf::File::open(kMaster);
  const Tokenizer tokenizer = read_tokenizer(file);
  for (const GoldenPrompt& prompt : golden().prompts) {
    EXPECT_EQ(tokenizer.encode(prompt.text, {.parse_special = true}), prompt.ids) << prompt.text;
    EXPECT_EQ(tokenizer.decode(prompt.ids, {.show_special = true}), prompt.text);
  }
}

TEST(BundledModel, FitsItsPlace) {
  EXPECT_LT(std::filesystem::file_size(kMaster), 20'000'000U);
  const Model model = Model::open(kMaster);
  EXPECT_EQ(model.facts().architecture, "qwen3moe");
  EXPECT_GE(model.facts().n_experts, 16);
  EXPECT_GE(model.facts().top_k, 4);
}

}  // namespace
}  // namespace conclave::testing
