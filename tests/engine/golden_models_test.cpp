// Checkpoints of transformers, converted and run, against the logits that transformers computes with them
// (tools/golden_models.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "convert/convert.h"
#include "convert/model_format.h"
#include "engine/random_model.h"
#include "support/golden_logits.h"

namespace conclave::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(CONCLAVE_SOURCE_DIR "/tests/golden/models")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenModelTest : public ::testing::TestWithParam<std::string> {
 protected:
  GoldenModelTest() : source_(fs::path(CONCLAVE_SOURCE_DIR "/tests/golden/models") / GetParam()) {}

  fs::path converted(const char* format) const {
    ThreadPool pool(1);
    const fs::path target = folder_.path() / "model.gguf";
    const ModelFormat* type = format == nullptr ? nullptr : find_model_format(format);
    convert_model({.folder = source_, .target = target, .format = type, .name = "", .pre = "", .about = {}}, pool, {});
    return target;
  }

  void expect_golden(const std::string& device, const char* format) const {
    const Model model = Model::open(converted(format), {.device = device, .threads = 2});
    Session session(model, {.context = 128, .kv_type = KvType::f32});
    for (const GoldenPrompt& prompt : read_golden_logits(source_ / "logits.bin").prompts) {
      const SequenceId sequence = session.create();
      const Rows rows = all_logits(session, sequence, prompt.ids);
      session.drop(sequence);
      ASSERT_EQ(rows.size(), prompt.logits.size());
      ASSERT_EQ(rows[0].size(), prompt.logits[0].size());
      EXPECT_LE(worst_error(rows, prompt.logits), kMaxGoldenError) << device << ", " << rows.size() << " tokens";
    }
  }

  fs::path source_;
  TempDir folder_;
};

INSTANTIATE_TEST_SUITE_P(Cases, GoldenModelTest, ::testing::ValuesIn(case_names()),
                         [](const auto& one) { return one.param; });

TEST(GoldenModels, EveryFamilyIsThere) {
  const std::vector<std::string> names = case_names();
  for (const std::string family : {"mixtral", "olmoe", "qwen2moe", "qwen3moe"}) {
    EXPECT_TRUE(std::find(names.begin(), names.end(), family) != names.end()) << family;
  }
}

TEST_P(GoldenModelTest, LogitsInF32AreThoseOfTransformers) {
  expect_golden("cpu", "F32");
  expect_golden("ref", "F32");
}

// The checkpoint's own 16-bit weights, multiplied as they are, are the same numbers.
TEST_P(GoldenModelTest, LogitsOfTheWeightsAsTheyAreStoredAreThoseOfTransformers) {
  expect_golden("cpu", nullptr);
}

}  // namespace
}  // namespace conclave::testing
