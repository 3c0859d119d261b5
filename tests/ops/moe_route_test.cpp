#include "ops/moe_route.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>
#include <optional>

#include "op_test_support.h"

namespace conclave::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr auto kFull = std::numeric_limits<std::int32_t>::max();

using Experts = std::vector<std::int32_t>;
using Weights = std::vector<float>;

struct Extras {
  Weights bias;
  Weights expert_scale;
  std::optional<std::int32_t> live;
  std::int32_t counter = 0;
  DType type = DType::f32;
  std::int64_t n_tokens = 1;
};

struct Routed {
  Experts experts;
  Weights weights;
  std::int32_t no_finite;
};

Routed route(const RoutingRule& rule, const Weights& logits, const Extras& extras = {}) {
  Host host;
  const std::int64_t n = extras.n_tokens;
  const std::int64_t n_experts = static_cast<std::int64_t>(logits.size()) / n;
  MoeRoute op{.logits = host.floats(extras.type, {n, n_experts}, logits), .rule = rule};
  if (!extras.bias.empty()) op.bias = host.f32({n_experts}, extras.bias);
  if (!extras.expert_scale.empty()) op.expert_scale = host.f32({n_experts}, extras.expert_scale);
  if (extras.live) op.live = host.live(*extras.live);
  op.out = {.experts = host.out_i32({n, rule.top_k}),
            .weights = host.out_f32({n, rule.top_k}),
            .no_finite = host.i32({1}, {extras.counter})};
  run(op);
  return {ints_of(op.out.experts), floats_of(op.out.weights), ints_of(op.out.no_finite)[0]};
}

void expect_near(const Weights& got, const Weights& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 2e-7F) << "slot " << i;
}

// exp of these logits is 1, 2, 4, 1: the sum is 8.
const Weights kOneTwoFourOne = {0, std::log(2.0F), std::log(4.0F), 0};

TEST(MoeRoute, TakesTheLargestLogitsBestFirstAndWeighsBySoftmaxOverAllExperts) {
  const Routed got = route({.top_k = 2}, kOneTwoFourOne);
  EXPECT_EQ(got.experts, (Experts{2, 1}));
  expect_near(got.weights, {4.0F / 8, 2.0F / 8});
}

TEST(MoeRoute, RenormalizeMakesTheWeightsSumToOne) {
  const Routed got = route({.top_k = 2, .renormalize = true}, kOneTwoFourOne);
  expect_near(got.weights, {4.0F / 6, 2.0F / 6});
}

TEST(MoeRoute, SoftmaxAfterTopKIsOverTheChosenAlone) {
  const Routed got = route({.top_k = 3, .score = Score::softmax_after_top_k}, kOneTwoFourOne);
  EXPECT_EQ(got.experts, (Experts{2, 1, 0}));
  expect_near(got.weights, {4.0F / 7, 2.0F / 7, 1.0F / 7});
}

TEST(MoeRoute, SigmoidScoresEachExpertByItself) {
  // sigmoid(ln 3) = 3/4, sigmoid(0) = 1/2, sigmoid(-ln 3) = 1/4
  const float ln3 = std::log(3.0F);
  expect_near(route({.top_k = 3, .score = Score::sigmoid}, {-ln3, 0, ln3}).weights, {0.75F, 0.5F, 0.25F});
  expect_near(route({.top_k = 3, .score = Score::sigmoid, .renormalize = true}, {-ln3, 0, ln3}).weights,
              {0.75F / 1.5F, 0.5F / 1.5F, 0.25F / 1.5F});
}

TEST(MoeRoute, SqrtSoftplusIsTheRootOfLogOfOnePlusExp) {
  // x = 0: sqrt(ln 2) = 0.83255461; x = ln(e - 1): 1 + exp(x) = e, so 1; x = 100: sqrt(100) = 10
  const Routed got = route({.top_k = 3, .score = Score::sqrt_softplus}, {0, 0.54132485F, 100});
  EXPECT_EQ(got.experts, (Experts{2, 1, 0}));
  EXPECT_FLOAT_EQ(got.weights[0], 10);
  EXPECT_FLOAT_EQ(got.weights[1], 1);
  EXPECT_FLOAT_EQ(got.weights[2], 0.83255461F);
}

TEST(MoeRoute, TiesGoToTheLowerIndex) {
  EXPECT_EQ(route({.top_k = 2}, {1, 3, 3, 3}).experts, (Experts{1, 2}));
  EXPECT_EQ(route({.top_k = 3}, {7, 7, 7, 7, 7}).experts, (Experts{0, 1, 2}));
  EXPECT_EQ(route({.top_k = 2, .score = Score::sigmoid}, {200, 300, 250}).experts, (Experts{0, 1})) << "all score 1";
}

TEST(MoeRoute, MinusZeroEqualsPlusZero) {
  EXPECT_EQ(route({.top_k = 2}, {-0.0F, 0.0F, -1}).experts, (Experts{0, 1}));
  EXPECT_EQ(route({.top_k = 2}, {0.0F, -0.0F, -1}).experts, (Experts{0, 1}));
  EXPECT_EQ(route({.top_k = 1, .score = Score::sigmoid}, {-0.0F, 0.0F}).experts, (Experts{0}));
}

TEST(MoeRoute, NanRanksAsMinusInfinityAndBothWeighNothing) {
  // Usable: experts 1 and 3, alike. Then the other two, in index order.
  for (const Score score : {Score::softmax, Score::softmax_after_top_k}) {
    const Routed got = route({.top_k = 4, .score = score}, {kNan, 0, -kInf, 0});
    EXPECT_EQ(got.experts, (Experts{1, 3, 0, 2}));
    EXPECT_EQ(got.weights, (Weights{0.5F, 0.5F, 0, 0}));
    EXPECT_EQ(got.no_finite, 0);
  }
  const Routed got = route({.top_k = 3, .score = Score::sqrt_softplus}, {-kInf, kNan, -1000});
  EXPECT_EQ(got.experts, (Experts{2, 0, 1})) << "a score of 0 still ranks above minus infinity";
  EXPECT_EQ(got.weights, (Weights{0, 0, 0}));
}

TEST(MoeRoute, PlusInfinityCountsAsTheLargestFiniteFloat) {
  const Routed got = route({.top_k = 3}, {1, kInf, FLT_MAX, kInf});
  EXPECT_EQ(got.experts, (Experts{1, 2, 3}));
  expect_near(got.weights, {1.0F / 3, 1.0F / 3, 1.0F / 3});
}

TEST(MoeRoute, RenormalizeDividesByAtLeastTwoToTheMinus14) {
  const RoutingRule rule{.top_k = 1, .score = Score::sigmoid, .renormalize = true};
  // 2^-14 = 6.1035e-5. sigmoid(-9) = 1.2339e-4 is above, sigmoid(-10) = 4.5398e-5 below: 4.5398e-5 * 16384 = 0.74380.
  EXPECT_FLOAT_EQ(route(rule, {-9}).weights[0], 1.0F);
  EXPECT_NEAR(route(rule, {-10}).weights[0], 0.74379772F, 1e-6F);
  EXPECT_EQ(route(rule, {-1000}).weights[0], 0.0F);
}

TEST(MoeRoute, ScaleMultipliesLastAndSoDoesEachExpertsOwn) {
  const RoutingRule rule{.top_k = 2, .renormalize = true, .scale = 2.5F};
  expect_near(route(rule, kOneTwoFourOne).weights, {2.5F * 4 / 6, 2.5F * 2 / 6});
  // Chosen are 2 and 1: their scales are 10 and 0.5.
  const Routed got = route(rule, kOneTwoFourOne, {.expert_scale = {-1, 0.5F, 10, -1}});
  EXPECT_FLOAT_EQ(got.weights[0], 10 * 2.5F * 4 / 6);
  EXPECT_FLOAT_EQ(got.weights[1], 0.5F * 2.5F * 2 / 6);
}

TEST(MoeRoute, BiasChoosesButDoesNotWeigh) {
  const Routed sigmoid = route({.top_k = 2, .score = Score::sigmoid}, {0, 0, 0}, {.bias = {0, 0.1F, 0.2F}});
  EXPECT_EQ(sigmoid.experts, (Experts{2, 1}));
  EXPECT_EQ(sigmoid.weights, (Weights{0.5F, 0.5F}));

  // Scores 1/8, 2/8, 4/8, 1/8; with the bias 1/8, 2/8, 4/8, 9/8.
  const Routed softmax = route({.top_k = 2}, kOneTwoFourOne, {.bias = {0, 0, 0, 1}});
  EXPECT_EQ(softmax.experts, (Experts{3, 2}));
  expect_near(softmax.weights, {1.0F / 8, 4.0F / 8});

  // Here the score is the logit: 0, ln 2, ln 4 = 1.386, 1.5.
  const Routed after =
      route({.top_k = 2, .score = Score::softmax_after_top_k}, kOneTwoFourOne, {.bias = {0, 0, 0, 1.5F}});
  EXPECT_EQ(after.experts, (Experts{3, 2}));
  expect_near(after.weights, {1.0F / 5, 4.0F / 5});
}

TEST(MoeRoute, NoBiasLiftsAnExpertWithoutALogit) {
  for (const Score score : {Score::softmax, Score::softmax_after_top_k, Score::sigmoid, Score::sqrt_softplus}) {
    const Routed got =
        route({.top_k = 3, .score = score, .renormalize = true}, {kNan, -kInf, 0}, {.bias = {9, kInf, -9}});
    EXPECT_EQ(got.experts, (Experts{2, 0, 1}));
    expect_near(got.weights, {1, 0, 0});
  }
}

TEST(MoeRoute, NanAndPlusInfinityInARankCountAsInALogit) {
  const RoutingRule rule{.top_k = 3, .score = Score::sigmoid};
  // Expert 2 ranks last though its logit is the best; its weight is sigmoid(9) all the same.
  const Routed nan = route(rule, {0, 1, 9}, {.bias = {0, 0, kNan}});
  EXPECT_EQ(nan.experts, (Experts{1, 0, 2}));
  EXPECT_NEAR(nan.weights[2], 0.99987661F, 1e-6F);
  // Both infinities are the largest float, and so is a sum of two of those: ties, to the lower index.
  EXPECT_EQ(route(rule, {0, 5, 1}, {.bias = {0, kInf, FLT_MAX}}).experts, (Experts{1, 2, 0}));
  EXPECT_EQ(route(rule, {0, 1, 5}, {.bias = {0, FLT_MAX, kInf}}).experts, (Experts{1, 2, 0}));
  const RoutingRule sums{.top_k = 1,
                         .score = Score::softmax_after_top_k,
                         .n_groups = 2,
                         .top_groups = 1,
                         .group_score = GroupScore::sum_of_two};
  EXPECT_EQ(route(sums, {FLT_MAX, 0, FLT_MAX, FLT_MAX}).experts, (Experts{0}));
}

TEST(MoeRoute, ARowWithoutAUsableLogitTakesTheFirstExpertsAlike) {
  for (const bool renormalize : {false, true}) {
    for (const Score score : {Score::softmax, Score::softmax_after_top_k, Score::sigmoid, Score::sqrt_softplus}) {
      const Routed got = route({.top_k = 2, .score = score, .renormalize = renormalize, .scale = 3},
                               {kNan, -kInf, kNan, -kInf}, {.bias = {0, 0, 9, 9}, .expert_scale = {1, 4, 1, 1}});
      EXPECT_EQ(got.experts, (Experts{0, 1}));
      EXPECT_EQ(got.weights, (Weights{1.5F, 6.0F})) << "1/2 * 3, and that times 4";
      EXPECT_EQ(got.no_finite, 1);
    }
  }
  const Routed grouped = route({.top_k = 2, .n_groups = 2, .top_groups = 1}, {kNan, kNan, kNan, kNan});
  EXPECT_EQ(grouped.experts, (Experts{0, 1}));
  EXPECT_EQ(grouped.weights, (Weights{0.5F, 0.5F}));
}

TEST(MoeRoute, TheCounterGoesUpByOnePerHopelessRowAndStaysAtItsLargest) {
  const Weights three_rows = {kNan, kNan, 0, kNan, -kInf, -kInf};  // hopeless, fine, hopeless
  EXPECT_EQ(route({}, three_rows, {.counter = 40, .n_tokens = 3}).no_finite, 42);
  EXPECT_EQ(route({}, three_rows, {.counter = kFull - 1, .n_tokens = 3}).no_finite, kFull);
  EXPECT_EQ(route({}, three_rows, {.counter = kFull, .n_tokens = 3}).no_finite, kFull);
  EXPECT_EQ(route({}, three_rows, {.live = 2, .counter = 40, .n_tokens = 3}).no_finite, 41) << "dead rows do not count";
  EXPECT_EQ(route({}, {kInf, kNan}).no_finite, 0) << "plus infinity is usable";
}

TEST(MoeRoute, CountsTheChosenExpertsOnTopOfWhatWasCounted) {
  Host host;
  MoeRoute op{
      .logits = host.f32({4, 3}, {1, 2, 3, 3, 2, 1, kNan, -kInf, kNan, 5, 5, 5}),
      .live = host.live(3),
      .rule = {.top_k = 2},
      .out = {
          .experts = host.out_i32({4, 2}), .weights = host.out_f32({4, 2}), .counts = host.i32({3}, {10, kFull, -1})}};
  run(op);  // 2 1, 0 1, 0 1 for want of better; the last is dead
  EXPECT_EQ(ints_of(op.out.counts), (Experts{12, std::numeric_limits<std::int32_t>::min() + 2, 0})) << "modulo 2^32";
}

TEST(MoeRoute, TheBestGroupIsThatOfTheBestExpert) {
  // Groups {0,1}, {2,3}, {4,5}: best ranks 2, 5, 4. Only group 1 stays, though 4 and 3 stand elsewhere.
  const RoutingRule rule{.top_k = 2, .n_groups = 3, .top_groups = 1};
  EXPECT_EQ(route(rule, {1, 2, 5, 0, 3, 4}).experts, (Experts{2, 3}));
}

TEST(MoeRoute, SoftmaxWeightsRunOverExpertsOfAllGroups) {
  // exp: 1, 2 | 4, 1. Group 1 stays; its experts keep 4/8 and 1/8.
  const Routed got = route({.top_k = 2, .n_groups = 2, .top_groups = 1}, kOneTwoFourOne);
  EXPECT_EQ(got.experts, (Experts{2, 3}));
  expect_near(got.weights, {4.0F / 8, 1.0F / 8});
}

TEST(MoeRoute, AGroupMayRankByTheSumOfItsTwoBest) {
  // Sigmoids: group 0 has 0.993 + 0.007 (+ 0.007) = 1.000, group 1 has 0.953 + 0.953 (+ 0.007) = 1.905.
  const Weights logits = {5, -5, -5, 3, 3, -5};
  RoutingRule rule{.top_k = 1, .score = Score::sigmoid, .n_groups = 2, .top_groups = 1};
  EXPECT_EQ(route(rule, logits).experts, (Experts{0})) << "by the best";
  rule.group_score = GroupScore::sum_of_two;
  EXPECT_EQ(route(rule, logits).experts, (Experts{3})) << "by the two best";
  // The third best does not count: three times 0.731 = 2.19 is more than 0.953 + 0.953 = 1.905; 2 * 0.731 = 1.46 is not.
  EXPECT_EQ(route(rule, {1, 1, 1, 3, 3, -5}).experts, (Experts{3}));
}

TEST(MoeRoute, SumsAreOfSoftmaxScoresOrOfTheLogitsWhereTheyAreTheScore) {
  // exp: 20.1 + 0.0 against 2.7 + 2.7. Logits: 3 - 10 against 1 + 1.
  const Weights logits = {3, -10, 1, 1};
  RoutingRule rule{.top_k = 1, .n_groups = 2, .top_groups = 1, .group_score = GroupScore::sum_of_two};
  EXPECT_EQ(route(rule, logits).experts, (Experts{0}));
  rule.score = Score::softmax_after_top_k;
  EXPECT_EQ(route(rule, logits).experts, (Experts{2}));
}

TEST(MoeRoute, BiasCountsInTheGroupsRank) {
  const RoutingRule rule{.top_k = 1, .score = Score::sigmoid, .n_groups = 2, .top_groups = 1};
  EXPECT_EQ(route(rule, {1, 1, 0, 0}, {.bias = {0, 0, 0, 0.5F}}).experts, (Experts{3})) << "0.731 against 0.5 + 0.5";
}

TEST(MoeRoute, TiesOfGroupsGoToTheLowerGroup) {
  // Every group's best is 1: groups 0 and 1 stay. Of 0, 1 | 1, 0 the best three are 1, 2 and 0 (a tie with 3).
  RoutingRule rule{.top_k = 3, .n_groups = 3, .top_groups = 2};
  EXPECT_EQ(route(rule, {0, 1, 1, 0, 1, 1}).experts, (Experts{1, 2, 0}));
  // Sums of two: 1, 1 and 2 (as logits): groups 2 and 0 stay, and candidates are still looked at in index order.
  rule.score = Score::softmax_after_top_k;
  rule.group_score = GroupScore::sum_of_two;
  EXPECT_EQ(route(rule, {0, 1, 1, 0, 1, 1}).experts, (Experts{1, 4, 5}));
}

TEST(MoeRoute, AnExpertWithoutALogitAddsNothingToItsGroup) {
  RoutingRule rule{
      .top_k = 1, .score = Score::sigmoid, .n_groups = 2, .top_groups = 1, .group_score = GroupScore::sum_of_two};
  // 0.953 + nothing against 0.5 + 0.269
  EXPECT_EQ(route(rule, {3, kNan, 0, -1}).experts, (Experts{0}));
  // Nothing at all ranks below any sum, also below (0.5 - 5) + (0.5 - 5) = -9.
  EXPECT_EQ(route(rule, {kNan, -kInf, 0, 0}, {.bias = {0, 0, -5, -5}}).experts, (Experts{2}));
}

TEST(MoeRoute, ExpertsOfOtherGroupsStayOutEvenWhereAChosenGroupRunsOutOfLogits) {
  const Routed got = route({.top_k = 2, .renormalize = true, .n_groups = 2, .top_groups = 1}, {5, kNan, 4, 4});
  EXPECT_EQ(got.experts, (Experts{0, 1}));
  EXPECT_EQ(got.weights, (Weights{1, 0}));
}

TEST(MoeRoute, TokensPastLiveAreLeftAlone) {
  const Weights logits = {1, 2, 2, 1, 1, 2};
  EXPECT_EQ(route({}, logits, {.live = 2, .n_tokens = 3}).experts, (Experts{1, 0, kUntouched}));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(route({}, logits, {.live = 2, .n_tokens = 3}).weights[2]), kPoisonF32);
  EXPECT_EQ(route({}, logits, {.live = -7, .n_tokens = 3}).experts, Experts(3, kUntouched)) << "below 0 is 0";
  EXPECT_EQ(route({}, logits, {.live = 99, .n_tokens = 3}).experts, (Experts{1, 0, 1})) << "more than there are is all";
}

TEST(MoeRoute, HalfPrecisionLogitsAreTakenExactly) {
  const Weights logits = {0.5F, -1.25F, 3, 0.0078125F};
  const Routed f32 = route({.top_k = 4}, logits);
  for (const DType type : {DType::f16, DType::bf16}) {
    const Routed got = route({.top_k = 4}, logits, {.type = type});
    EXPECT_EQ(got.experts, f32.experts);
    EXPECT_EQ(got.weights, f32.weights);
  }
}

TEST(MoeRoute, WorksWithoutACounterAndWithoutTokens) {
  Host host;
  MoeRoute op{.logits = host.f32({1, 2}, {kNan, kNan}),
              .out = {.experts = host.out_i32({1, 1}), .weights = host.out_f32({1, 1})}};
  run(op);
  EXPECT_EQ(ints_of(op.out.experts), (Experts{0}));
  op = {.logits = host.f32({0, 2}, {}), .out = {.experts = host.out_i32({0, 1}), .weights = host.out_f32({0, 1})}};
  run(op);
}

// ---- refusals

MoeRoute good_route(Host& host) {
  return {.logits = host.values(DType::f32, {2, 4}),
          .bias = host.values(DType::f32, {4}),
          .expert_scale = host.values(DType::f32, {4}),
          .live = host.live(2),
          .rule = {.top_k = 2},
          .out = {.experts = host.out_i32({2, 2}),
                  .weights = host.out_f32({2, 2}),
                  .no_finite = host.i32({1}, {0}),
                  .counts = host.i32({4}, {0, 0, 0, 0})}};
}

TEST(MoeRouteRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_route(host), {"bias", "expert_scale", "live", "no_finite", "counts"});
  expect_bad_views_refused(good_route(host));
}

TEST(MoeRouteRefuses, WrongTypesAndShapes) {
  Host host;
  const MoeRoute op = good_route(host);
  const auto refused = [&](auto edit, std::string_view text) { expect_refusal(op, edit, text); };
  refused([&](auto& o) { o.logits = host.out_i32({2, 4}); }, "moe_route: logits is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.logits = host.out_f32({8}); }, "moe_route: logits is [8], expected [any,any]");
  refused([&](auto& o) { o.bias = host.out_f32({3}); }, "moe_route: bias is [3], expected [4]");
  refused([&](auto& o) { o.bias = host.output(DType::f16, {4}); }, "moe_route: bias is f16, expected f32");
  refused([&](auto& o) { o.expert_scale = host.out_f32({1, 4}); }, "moe_route: expert_scale is [1,4], expected [4]");
  refused([&](auto& o) { o.expert_scale = host.out_i32({4}); }, "moe_route: expert_scale is i32, expected f32");
  refused([&](auto& o) { o.live = host.out_i32({2}); }, "moe_route: live is [2], expected [1]");
  refused([&](auto& o) { o.live = host.out_f32({1}); }, "moe_route: live is f32, expected i32");
  refused([&](auto& o) { o.out.experts = host.out_i32({2, 3}); }, "moe_route: experts is [2,3], expected [2,2]");
  refused([&](auto& o) { o.out.experts = host.out_u32({2, 2}); }, "moe_route: experts is u32, expected i32");
  refused([&](auto& o) { o.out.weights = host.out_f32({3, 2}); }, "moe_route: weights is [3,2], expected [2,2]");
  refused(
      [&](auto& o) {
        o.out.weights = host.output(DType::bf16, {2, 2});
      },
      "moe_route: weights is bf16, expected f32");
  refused([&](auto& o) { o.out.no_finite = host.out_i32({2}); }, "moe_route: no_finite is [2], expected [1]");
  refused([&](auto& o) { o.out.no_finite = host.out_f32({1}); }, "moe_route: no_finite is f32, expected i32");
  refused([&](auto& o) { o.out.counts = host.out_i32({3}); }, "moe_route: counts is [3], expected [4]");
  refused([&](auto& o) { o.out.counts = host.out_u32({4}); }, "moe_route: counts is u32, expected i32");
}

TEST(MoeRouteRefuses, RulesThatCannotBe) {
  Host host;
  const MoeRoute op = good_route(host);
  const auto refused = [&](auto edit, std::string_view text) { expect_refusal(op, edit, text); };
  refused([&](auto& o) { o.logits = host.out_f32({2, 0}); }, "moe_route: there are no experts");
  refused([](auto& o) { o.rule.top_k = 0; }, "moe_route: top_k is 0, expected 1 to 4");
  refused([](auto& o) { o.rule.top_k = 5; }, "moe_route: top_k is 5, expected 1 to 4");
  refused([](auto& o) { o.rule.scale = kNan; }, "moe_route: scale is nan, expected a finite number");
  refused([](auto& o) { o.rule.scale = -kInf; }, "moe_route: scale is -inf, expected a finite number");
  refused([](auto& o) { o.rule.n_groups = 0; }, "moe_route: n_groups is 0, expected 1 to 4");
  refused([](auto& o) { o.rule.n_groups = 5; }, "moe_route: n_groups is 5, expected 1 to 4");
  refused([](auto& o) { o.rule.n_groups = 3; }, "moe_route: 3 groups do not divide 4 experts");
  refused([](auto& o) { o.rule.top_groups = 0; }, "moe_route: top_groups is 0, expected 1 to 1");
  refused([](auto& o) { o.rule = {.top_k = 2, .n_groups = 2, .top_groups = 3}; }, "top_groups is 3, expected 1 to 2");
  refused([](auto& o) { o.rule = {.top_k = 3, .n_groups = 2}; }, "moe_route: top_k is 3, but 1 groups hold 2 experts");
}

TEST(MoeRouteRefuses, MorePairsThan32BitsCount) {
  Host host;
  const auto tokens = [&](std::int64_t n) { return [n](auto& o) { o.logits = repeated(o.logits, n); }; };
  const std::int64_t n = std::int64_t{1} << 30;
  expect_refusal(good_route(host), tokens(n), "moe_route: 1073741824 tokens with 2 experts each: pair ids are 32-bit");
  // One less passes this check and fails at the next.
  expect_refusal(good_route(host), tokens(n - 1), "moe_route: experts is [2,2], expected [1073741823,2]");
}

}  // namespace
}  // namespace conclave::test
