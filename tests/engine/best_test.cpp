// The best token of a row is found on the device: it is the one that the sampler would choose from the row's logits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conclave/generate.h"
#include "engine/on_devices.h"
#include "engine/random_model.h"
#include "ops/argmax.h"
#include "sample/sampler.h"

namespace conclave::testing {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A model whose head has this instead of random numbers.
class HeadModel {
 public:
  explicit HeadModel(float value) {
    ModelFixture model = tiny_model("qwen3moe");
    retype_blocks(model, DType::f32);
    test::Rng rng(1);
    model.write(path(), {}, [&](const FixtureTensor& t, std::vector<std::byte>& bytes) {
      random_weights(t, bytes, rng);
      if (t.name != "output.weight") return;
      for (std::size_t at = 0; at < bytes.size(); at += sizeof value) std::memcpy(&bytes[at], &value, sizeof value);
    });
  }
  std::filesystem::path path() const { return folder_.path() / "model.gguf"; }

 private:
  TempDir folder_;
};

class BestTest : public OnDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, BestTest, ::testing::Values("ref", "cpu", "cuda", "metal"));

TEST_P(BestTest, IsWhatTheSamplerChoosesFromTheLogits) {
  const RandomModel file("qwen2moe", DType::f32);
  Session session(file.open(GetParam()), {.context = 300, .max_sequences = 3, .chunk = 32, .logit_rows = 4});
  Sampler greedy({.temperature = 0}, kTinyVocab);
  const SequenceId a = session.create();
  const SequenceId b = session.create();
  const SequenceId c = session.create();
  const Tokens tokens = random_tokens(70);
  const StepInput inputs[] = {{a, tokens, LogitRows::all},
                              {b, std::span(tokens).first(1), LogitRows::last},
                              {c, std::span(tokens).last(9), LogitRows::none}};
  std::vector<std::pair<std::size_t, std::size_t>> places;
  std::vector<std::int32_t> want;
  std::vector<std::int32_t> got;
  session.step(inputs, {.logits =
                            [&](const LogitRow& row) {
                              places.emplace_back(row.input, row.token);
                              want.push_back(greedy.next(row.logits));
                            },
                        .best =
                            [&](const BestRow& row) {
                              ASSERT_EQ(places[got.size()], std::make_pair(row.input, row.token));
                              got.push_back(row.id);
                            }});
  EXPECT_EQ(got.size(), 71U);
  EXPECT_EQ(got, want);
  EXPECT_NE(*std::max_element(got.begin(), got.end()), *std::min_element(got.begin(), got.end()));

  std::vector<std::int32_t> alone;
  const SequenceId d = (session.drop(c), session.create());
  const StepInput again{d, tokens, LogitRows::all};
  session.step({&again, 1}, {.best = [&](const BestRow& row) { alone.push_back(row.id); }});
  EXPECT_EQ(alone, Tokens(want.begin(), want.begin() + 70));
  session.cut(d, 69);
  EXPECT_EQ(session.extend_best(d, std::span(tokens).last(1)), want[69]);
}

TEST_P(BestTest, OfEqualLogitsIsTheFirstAndOfNoneIsNone) {
  const Tokens tokens = random_tokens(3);
  const auto best = [&](float weight) {
    const HeadModel file(weight);
    Session session(Model::open(file.path(), {.device = GetParam()}), {.context = 10});
    return session.extend_best(session.create(), tokens);
  };
  EXPECT_EQ(best(0), 0);
  EXPECT_EQ(best(kNan), -1);

  const HeadModel file(kNan);
  Session session(Model::open(file.path(), {.device = GetParam()}), {.context = 10});
  for (const double temperature : {0.0, 1.0}) {
    try {
      Generator(session).generate(tokens, {.sampling = {.temperature = temperature}});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "no token can be chosen: every logit is NaN or minus infinity");
    }
  }
  const Generation none = Generator(session).generate(tokens, {.sampling = {.temperature = 0}, .max_tokens = 0});
  EXPECT_EQ(none.stop, StopReason::length);
}

// The two definitions, on rows of few and odd values.
TEST(Best, ArgmaxAndTheGreedySamplerAgree) {
  const float largest = std::numeric_limits<float>::max();
  const float values[] = {-kInf, kNan, -largest, -0.0F, 0.0F, 1.0F, largest, kInf};
  test::Rng rng(3);
  int none = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto n = static_cast<std::size_t>(rng.integer(1, i % 10 == 0 ? 200 : 5));
    const std::int64_t kinds = rng.integer(1, std::size(values));
    std::vector<float> row(n);
    for (float& value : row) value = values[rng.integer(0, kinds - 1)];
    std::int32_t id = -1;
    BorrowedBuffer x(reinterpret_cast<std::byte*>(row.data()), static_cast<std::int64_t>(n * sizeof(float)));
    BorrowedBuffer ids(reinterpret_cast<std::byte*>(&id), sizeof id);
    reference(
        Argmax{.x = dense(x, 0, DType::f32, {1, static_cast<std::int64_t>(n)}), .ids = dense(ids, 0, DType::i32, {1})});
    Sampler greedy({.temperature = 0}, static_cast<std::int64_t>(n));
    EXPECT_TRUE(greedy.takes_best());
    if (id == 0 && !(row[0] > -kInf)) {
      EXPECT_THROW(greedy.next(row), Error);
      ++none;
    } else {
      EXPECT_EQ(greedy.next(row), id);
    }
  }
  EXPECT_GT(none, 100);
}

TEST(Best, IsNotEnoughForOtherSamplers) {
  EXPECT_FALSE(Sampler({}, 4).takes_best());
  EXPECT_FALSE(Sampler({.temperature = 0, .repeat_penalty = 1.1}, 4).takes_best());
  EXPECT_FALSE(Sampler({.temperature = 0, .presence_penalty = 1}, 4).takes_best());
  EXPECT_TRUE(Sampler({.temperature = 0, .repeat_penalty = 1.1, .repeat_last_n = 0}, 4).takes_best());
}

}  // namespace
}  // namespace conclave::testing
