// How often experts were chosen: the counters of the device against the routing of every token.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/on_devices.h"
#include "engine/random_model.h"

namespace conclave::testing {
namespace {

class ExpertCountsTest : public OnDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, ExpertCountsTest, ::testing::Values("ref", "cpu", "cuda", "metal"));

TEST_P(ExpertCountsTest, AreThoseOfTheRouting) {
  for (const DType type : {DType::f32, DType::q4_k}) {
    if (type != DType::f32 && std::string(GetParam()) == "metal") continue;  // takes seconds
    const RandomModel file("qwen3moe", type);
    Session session(file.open(GetParam()), {.context = 300, .max_sequences = 2, .chunk = 32, .trace_routing = true});
    std::vector<std::int64_t> want(static_cast<std::size_t>(kTinyLayers * kTinyExperts));
    EXPECT_EQ(session.expert_counts(), want);
    const StepHooks trace{.routing = [&](const RoutingRow& row) {
      for (const std::int32_t e : row.experts) ++want[static_cast<std::size_t>(row.layer * kTinyExperts + e)];
    }};
    const SequenceId a = session.create();
    const SequenceId b = session.create();
    const Tokens tokens = random_tokens(70);
    const StepInput inputs[] = {{a, tokens}, {b, std::span(tokens).first(3)}};
    session.step(inputs, trace);
    EXPECT_EQ(session.expert_counts(), want);
    for (std::size_t i = 0; i < 12; ++i) {  // single tokens, and two of them
      const StepInput next[] = {{a, std::span(tokens).subspan(i, 1)}, {b, std::span(tokens).subspan(20 + i, 1)}};
      session.step(std::span(next).first(1 + i % 2), trace);
      if (i % 5 == 0) {
        EXPECT_EQ(session.expert_counts(), want) << i;
      }
    }
    EXPECT_EQ(session.expert_counts(), want);
    EXPECT_EQ(std::accumulate(want.begin(), want.end(), std::int64_t{0}), (73 + 18) * kTinyTopK * kTinyLayers);
  }
}

TEST_P(ExpertCountsTest, OfTheLastLayerAreOfTokensWhoseLogitsWereWanted) {
  const RandomModel file("olmoe", DType::f32);
  Session session(file.open(GetParam()), {.context = 100, .logit_rows = 4});
  const Tokens tokens = random_tokens(20);
  const auto pairs = [&](LogitRows logits) {
    const auto sum = [&] {
      const std::vector<std::int64_t> counts = session.expert_counts();
      const auto middle = counts.begin() + (kTinyLayers - 1) * kTinyExperts;
      return std::pair(std::accumulate(counts.begin(), middle, std::int64_t{0}),
                       std::accumulate(middle, counts.end(), std::int64_t{0}));
    };
    const auto before = sum();
    const SequenceId a = session.create();
    const StepInput input{a, tokens, logits};
    session.step({&input, 1}, {});
    session.drop(a);
    const auto after = sum();
    return std::pair((after.first - before.first) / kTinyTopK, (after.second - before.second) / kTinyTopK);
  };
  EXPECT_EQ(pairs(LogitRows::none), std::pair(20L * (kTinyLayers - 1), 0L));
  EXPECT_EQ(pairs(LogitRows::last), std::pair(20L * (kTinyLayers - 1), 1L));
  EXPECT_EQ(pairs(LogitRows::all), std::pair(20L * (kTinyLayers - 1), 20L));
}

}  // namespace
}  // namespace conclave::testing
