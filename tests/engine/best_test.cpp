// The best tokens of a row are found on the device: they are what the sampler would choose from, given the row's logits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conclave/generate.h"
#include "engine/on_devices.h"
#include "engine/random_model.h"
#include "ops/argmax.h"
#include "ops/top_k.h"
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
  Session session(Model::open(file.path(), {.device = GetParam()}), {.context = 10, .max_sequences = 2});
  const SequenceId begun = session.create();
  const NextToken first{begun, 1};
  const NextToken following{begun, std::nullopt};
  session.begin({&first, 1});
  session.begin({&following, 1});
  EXPECT_EQ(session.finish()[0], -1);
  EXPECT_EQ(session.finish()[0], -1);
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

// The k best of a row by the op's reference.
struct Ranked {
  Ranked(std::vector<float> row, std::int64_t k) : ids(static_cast<std::size_t>(k)), logits(ids.size()) {
    BorrowedBuffer x(reinterpret_cast<std::byte*>(row.data()), static_cast<std::int64_t>(row.size() * sizeof(float)));
    BorrowedBuffer i(reinterpret_cast<std::byte*>(ids.data()), k * 4);
    BorrowedBuffer v(reinterpret_cast<std::byte*>(logits.data()), k * 4);
    reference(TopK{.x = dense(x, 0, DType::f32, {1, static_cast<std::int64_t>(row.size())}),
                   .ids = dense(i, 0, DType::i32, {1, k}),
                   .values = dense(v, 0, DType::f32, {1, k})});
  }
  std::vector<std::int32_t> ids;
  std::vector<float> logits;
};

TEST_P(BestTest, TheTopIsThatOfTheLogits) {
  const RandomModel file("qwen2moe", DType::f32);
  Session session(file.open(GetParam()), {.context = 300, .max_sequences = 3, .chunk = 32, .logit_rows = 4});
  const Tokens tokens = random_tokens(37);
  const SequenceId a = session.create();
  const SequenceId b = session.create();
  const StepInput inputs[] = {{a, tokens, LogitRows::all}, {b, std::span(tokens).first(1), LogitRows::last}};
  std::vector<Ranked> want;
  std::size_t got = 0;
  session.step(inputs, {.logits =
                            [&](const LogitRow& row) {
                              want.emplace_back(std::vector(row.logits.begin(), row.logits.end()), kTopLogits);
                            },
                        .top =
                            [&](const TopRow& row) {
                              ASSERT_EQ(row.ids.size(), static_cast<std::size_t>(std::min(kTinyVocab, kTopLogits)));
                              ASSERT_EQ(row.logits.size(), row.ids.size());
                              EXPECT_TRUE(std::equal(row.ids.begin(), row.ids.end(), want[got].ids.begin()));
                              EXPECT_TRUE(std::equal(row.logits.begin(), row.logits.end(), want[got].logits.begin()));
                              ++got;
                            }});
  EXPECT_EQ(got, 38U);

  const HeadModel none(kNan);
  Session empty(Model::open(none.path(), {.device = GetParam()}), {.context = 10});
  const StepInput input{empty.create(), std::span(tokens).first(3)};
  std::optional<std::size_t> usable;
  empty.step({&input, 1}, {.top = [&](const TopRow& row) { usable = row.ids.size(); }});
  EXPECT_EQ(usable, 0U);
}

TEST_P(BestTest, AGeneratorChoosesAsTheSamplerDoesFromTheLogits) {
  const RandomModel file("qwen2moe", DType::f32);
  Session session(file.open(GetParam()), {.context = 200, .max_sequences = 2, .exact_prompts = true});
  const Tokens prompt = random_tokens(9);
  for (const SamplerOptions& options :
       {SamplerOptions{.seed = 5}, SamplerOptions{.top_k = 1}, SamplerOptions{.top_k = 64}, SamplerOptions{.top_k = 65},
        SamplerOptions{.repeat_penalty = 1.3}}) {
    const Generation made = Generator(session).generate(prompt, {.sampling = options, .max_tokens = 20});
    Sampler sampler(options, kTinyVocab);
    for (const std::int32_t id : prompt) sampler.accept(id);
    const SequenceId sequence = session.create();
    std::vector<std::int32_t> want;
    std::span<const float> logits = session.extend(sequence, prompt);
    while (want.size() < 20) {
      want.push_back(sampler.next(logits));
      sampler.accept(want.back());
      logits = session.extend(sequence, std::span(want).last(1));
    }
    session.drop(sequence);
    EXPECT_EQ(made.tokens, want) << "top_k " << options.top_k;
  }
}

const float kOddValues[] = {-kInf, kNan, -std::numeric_limits<float>::max(), -0.0F,
                            0.0F,  1.0F, std::numeric_limits<float>::max(),  kInf};

TEST(Best, IsEnoughForASamplerOfThem) {
  test::Rng rng(4);
  int thrown = 0;
  for (int i = 0; i < 4000; ++i) {
    const auto n = static_cast<std::size_t>(rng.integer(1, i % 4 == 0 ? 300 : 6));
    const SamplerOptions options{.temperature = rng.chance(0.2) ? 0 : 0.7,
                                 .top_k = rng.integer(1, 20),
                                 .top_p = rng.chance(0.5) ? 1 : 0.9,
                                 .min_p = rng.chance(0.5) ? 0 : 0.1,
                                 .seed = static_cast<std::uint64_t>(i)};
    const bool odd = options.temperature > 0 && rng.chance(0.5);  // greedily infinity is more than the largest float
    std::vector<float> row(n);
    for (float& x : row) x = odd ? kOddValues[rng.integer(0, 7)] : static_cast<float>(rng.normal());
    Sampler from_all(options, static_cast<std::int64_t>(n));
    Sampler from_best = from_all;
    const std::int64_t k = from_best.needs_best() + rng.integer(0, 3);
    ASSERT_GT(from_best.needs_best(), 0);
    const Ranked ranked(row, k);
    if (ranked.ids[0] < 0) {
      EXPECT_THROW(from_all.next(row), Error);
      EXPECT_THROW(from_best.next_of_best(ranked.ids, ranked.logits), Error);
      ++thrown;
      continue;
    }
    for (int draw = 0; draw < 3; ++draw) {
      EXPECT_EQ(from_best.next_of_best(ranked.ids, ranked.logits), from_all.next(row)) << i;
    }
  }
  EXPECT_GT(thrown, 20);
}

// The two definitions, on rows of few and odd values.
TEST(Best, ArgmaxAndTheGreedySamplerAgree) {
  const auto& values = kOddValues;
  test::Rng rng(3);
  int none = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto n = static_cast<std::size_t>(rng.integer(1, i % 10 == 0 ? 200 : 5));
    const std::int64_t kinds = rng.integer(1, std::size(values));
    std::vector<float> row(n);
    for (float& value : row) value = values[rng.integer(0, kinds - 1)];
    std::int32_t id = -2;
    BorrowedBuffer x(reinterpret_cast<std::byte*>(row.data()), static_cast<std::int64_t>(n * sizeof(float)));
    BorrowedBuffer ids(reinterpret_cast<std::byte*>(&id), sizeof id);
    reference(
        Argmax{.x = dense(x, 0, DType::f32, {1, static_cast<std::int64_t>(n)}), .ids = dense(ids, 0, DType::i32, {1})});
    Sampler greedy({.temperature = 0}, static_cast<std::int64_t>(n));
    EXPECT_TRUE(greedy.takes_best());
    if (id == -1) {
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

  EXPECT_EQ(Sampler({}, 4).needs_best(), 40);
  EXPECT_EQ(Sampler({.temperature = 0}, 4).needs_best(), 1);
  EXPECT_EQ(Sampler({.top_k = 0}, 4).needs_best(), 0);
  EXPECT_EQ(Sampler({.repeat_penalty = 1.1}, 4).needs_best(), 0);
}

}  // namespace
}  // namespace conclave::testing
