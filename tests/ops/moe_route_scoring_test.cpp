// moe_route on many random rows against a sort and a softmax written here, and the functions of ops/scoring.h against <cmath>.
#include "ops/scoring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "op_test_support.h"

namespace conclave::test {
namespace {

// ---- the scoring functions

double ulp_of(double exact) {
  return std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
}

// Every 997th float from low to high and evenly spaced ones, ascending.
std::vector<float> sweep(float low, float high) {
  std::vector<float> xs;
  const auto add_magnitudes = [&](float end, float sign) {
    for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(end); bits += 997) {
      xs.push_back(sign * std::bit_cast<float>(bits));
    }
    xs.push_back(sign * end);
  };
  if (low < 0) add_magnitudes(-low, -1);
  if (high > 0) add_magnitudes(high, 1);
  const int steps = 400'000;
  for (int i = 0; i <= steps; ++i) xs.push_back(low + (high - low) * static_cast<float>(i) / static_cast<float>(steps));
  xs.erase(std::remove_if(xs.begin(), xs.end(), [&](float x) { return x < low || x > high; }), xs.end());
  std::sort(xs.begin(), xs.end());
  return xs;
}

struct Promise {
  double ulps;  // from the exact value
  int drop;     // how many ulps a larger x may give less than a smaller one
};

void expect_accurate(float (*function)(float), double (*exact)(double), float low, float high, Promise promise) {
  float largest = 0;
  double worst = 0;
  float worst_x = 0;
  for (const float x : sweep(low, high)) {
    const float got = function(x);
    const double want = exact(static_cast<double>(x));
    const double error = std::fabs(static_cast<double>(got) - want) / ulp_of(want);
    if (!(error <= worst)) worst = error, worst_x = x;
    float least = largest;
    for (int i = 0; i < promise.drop; ++i) least = std::nextafter(least, 0.0F);
    if (got < least) FAIL() << "at " << x << " down from " << largest << " to " << got;
    largest = std::max(largest, got);
  }
  EXPECT_LE(worst, promise.ulps) << "at " << worst_x;
}

// Measured once on every float, from -87.3 to -0.001 for exp and from -20 to 20 (without |x| < 1e-6) for the others: at worst
// 0.94 ulp and a drop of 1 for exp, 2.41 and 2 for sigmoid, 2.20 and 3 for sqrt_softplus.
TEST(Scoring, ExpIsWithinTwoUlpAndAscends) {
  expect_accurate(score_exp, std::exp, -87.3F, 0.0F, {.ulps = 2, .drop = 1});
}

TEST(Scoring, SigmoidIsWithinThreeUlpAndAscends) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  expect_accurate(score_sigmoid, sigmoid, -87.0F, 100.0F, {.ulps = 3, .drop = 2});
}

TEST(Scoring, SqrtSoftplusIsWithinThreeUlpAndAscends) {
  const auto sqrt_softplus = [](double x) { return std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)))); };
  expect_accurate(score_sqrt_softplus, sqrt_softplus, -87.0F, 1000.0F, {.ulps = 3, .drop = 3});
}

TEST(Scoring, ExpIsExactAtZeroAndNeverSubnormal) {
  EXPECT_EQ(score_exp(0.0F), 1.0F);
  EXPECT_EQ(score_exp(-0.0F), 1.0F);
  float x = -87.4F;
  for (; x < -87.3F; x = std::nextafter(x, 0.0F)) {
    const float y = score_exp(x);
    EXPECT_TRUE(y == 0.0F || y >= std::numeric_limits<float>::min()) << x << " gives " << y;
  }
  EXPECT_GT(score_exp(x), 0.0F);
  EXPECT_EQ(score_exp(-87.34F), 0.0F) << "ln(2^-126) = -87.3365";
  EXPECT_EQ(score_exp(-1e30F), 0.0F);
  EXPECT_EQ(score_exp(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_EQ(score_exp(std::numeric_limits<float>::quiet_NaN()), 0.0F);
}

TEST(Scoring, ExtremesHaveTheirLimits) {
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(score_sigmoid(most), 1.0F);
  EXPECT_EQ(score_sigmoid(-most), 0.0F);
  EXPECT_EQ(score_sigmoid(0.0F), 0.5F);
  EXPECT_EQ(score_sigmoid(-0.0F), 0.5F);
  EXPECT_EQ(score_sqrt_softplus(most), std::sqrt(most));
  EXPECT_EQ(score_sqrt_softplus(-most), 0.0F);
  EXPECT_EQ(score_sqrt_softplus(0.0F), score_sqrt_softplus(-0.0F));
}

TEST(Scoring, GivesTheseBitsOnEveryMachine) {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  std::uint32_t folded[3] = {};
  for (int i = 0; i < 4096; ++i) {
    const float x = static_cast<float>(i) * 0.0234375F - 80.0F;  // -80 .. 16
    folded[0] = std::rotl(folded[0], 1) ^ bits(score_exp(std::min(x, 0.0F)));
    folded[1] = std::rotl(folded[1], 1) ^ bits(score_sigmoid(x));
    folded[2] = std::rotl(folded[2], 1) ^ bits(score_sqrt_softplus(x));
  }
  EXPECT_EQ(folded[0], 0xA70085ABU);
  EXPECT_EQ(folded[1], 0x6D2875B7U);
  EXPECT_EQ(folded[2], 0x4AA61893U);
}

// fold_chains as a recursion: the chains i, i + step, i + 2 step, ... are those of even and of odd multiples.
float folded(std::span<const float, 32> c, std::size_t i, std::size_t step) {
  return step == 32 ? c[i] : folded(c, i, 2 * step) + folded(c, i + step, 2 * step);
}

TEST(Scoring, ChainsAreFoldedInHalves) {
  // 2^24 + 1 rounds to 2^24, so the 1 survives only where 2^24 meets -2^24 first: in chains 0 and 16.
  float c[32] = {};
  c[0] = 0x1p24F, c[16] = -0x1p24F, c[1] = 1;
  EXPECT_EQ(fold_chains(c), 1.0F);
  float adjacent[32] = {};
  adjacent[0] = 0x1p24F, adjacent[1] = -0x1p24F, adjacent[16] = 1;
  EXPECT_EQ(fold_chains(adjacent), 0.0F);

  Rng rng(11);
  for (int round = 0; round < 1000; ++round) {
    float random[32];
    for (float& x : random) x = static_cast<float>(std::ldexp(rng.normal(), static_cast<int>(rng.integer(-12, 12))));
    const float expected = folded(random, 0, 1);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(fold_chains(random)), std::bit_cast<std::uint32_t>(expected));
  }
}

// ---- many rows

struct Batch {
  MoeRoute op;
  std::vector<float> logits;

  Batch(Host& host, std::int64_t n_tokens, std::int64_t n_experts, const RoutingRule& rule,
        const std::function<double(Rng&)>& draw) {
    logits.resize(static_cast<std::size_t>(n_tokens * n_experts));
    for (float& x : logits) x = static_cast<float>(draw(host.rng));
    op = {.logits = host.f32({n_tokens, n_experts}, logits),
          .rule = rule,
          .out = {.experts = host.out_i32({n_tokens, rule.top_k}), .weights = host.out_f32({n_tokens, rule.top_k})}};
  }
};

// The order of a row: larger first, ties as they stand.
std::vector<std::int32_t> descending(std::span<const float> row) {
  std::vector<std::int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return row[static_cast<std::size_t>(a)] > row[static_cast<std::size_t>(b)];
  });
  return order;
}

void expect_sorted_and_softmax(const Batch& batch) {
  run(batch.op);
  const auto n_experts = static_cast<std::size_t>(batch.op.logits.dim(1));
  const auto top_k = static_cast<std::size_t>(batch.op.rule.top_k);
  const std::vector<std::int32_t> experts = ints_of(batch.op.out.experts);
  const std::vector<float> weights = floats_of(batch.op.out.weights);
  for (std::size_t t = 0; t * n_experts < batch.logits.size(); ++t) {
    const std::span<const float> row(&batch.logits[t * n_experts], n_experts);
    const std::vector<std::int32_t> order = descending(row);
    const auto chosen = std::span(&experts[t * top_k], top_k);
    ASSERT_TRUE(std::equal(chosen.begin(), chosen.end(), order.begin())) << "row " << t;
    // softmax over all, divided by the sum of the chosen: the full sum falls out.
    long double sum = 0;
    for (const std::int32_t e : chosen) sum += std::exp(static_cast<long double>(row[static_cast<std::size_t>(e)]));
    for (std::size_t s = 0; s < top_k; ++s) {
      const long double expected = std::exp(static_cast<long double>(row[static_cast<std::size_t>(chosen[s])])) / sum;
      ASSERT_NEAR(weights[t * top_k + s], static_cast<double>(expected), 1e-6) << "row " << t << " slot " << s;
    }
  }
}

constexpr RoutingRule kEightRenormalized{.top_k = 8, .renormalize = true};

TEST(MoeRouteRandom, HundredThousandRowsAreAStableSortAndASoftmax) {
  for (std::uint64_t part = 0; part < 10; ++part) {
    Host host(100 + part);
    expect_sorted_and_softmax(Batch(host, 10'000, 128, kEightRenormalized, [](Rng& rng) { return 2 * rng.normal(); }));
  }
}

TEST(MoeRouteRandom, HundredThousandRowsFullOfTiesAreAStableSortAndASoftmax) {
  for (std::uint64_t part = 0; part < 10; ++part) {
    Host host(200 + part);
    // Quarters from -2 to 2, zeros of either sign: 17 values for 128 experts.
    const auto draw = [](Rng& rng) {
      const double value = 0.25 * static_cast<double>(rng.integer(-8, 8));
      return value == 0 && rng.chance(0.5) ? -0.0 : value;
    };
    expect_sorted_and_softmax(Batch(host, 10'000, 128, kEightRenormalized, draw));
  }
}

TEST(MoeRouteRandom, AnyNumberOfExpertsWillDo) {
  for (const std::int64_t n_experts : {1, 2, 3, 31, 33, 60, 72, 128, 160, 257, 384, 512, 896, 1024}) {
    for (const std::int64_t top_k : {std::int64_t{1}, std::min<std::int64_t>(n_experts, 7), n_experts}) {
      Host host(static_cast<std::uint64_t>(n_experts));
      const auto draw = [](Rng& rng) { return 0.5 * static_cast<double>(rng.integer(-20, 20)); };
      expect_sorted_and_softmax(Batch(host, 10, n_experts, {.top_k = top_k, .renormalize = true}, draw));
    }
  }
}

TEST(MoeRouteRandom, WithABiasIdsAreASortOfScoresByTheStepsOfTheHeader) {
  for (const Score score : {Score::softmax, Score::softmax_after_top_k, Score::sigmoid, Score::sqrt_softplus}) {
    Host host(7);
    const std::int64_t n = 2000, n_experts = 72;
    Batch batch(host, n, n_experts, {.top_k = 6, .score = score}, [](Rng& rng) { return rng.integer(-4, 4); });
    std::vector<float> bias(72);
    for (float& b : bias) b = 0.125F * static_cast<float>(host.rng.integer(-3, 3));
    batch.op.bias = host.f32({n_experts}, bias);
    run(batch.op);
    const std::vector<std::int32_t> experts = ints_of(batch.op.out.experts);
    for (std::size_t t = 0; t < static_cast<std::size_t>(n); ++t) {
      std::vector<float> rank(&batch.logits[t * 72], &batch.logits[t * 72] + 72);
      if (score == Score::sigmoid) std::transform(rank.begin(), rank.end(), rank.begin(), score_sigmoid);
      if (score == Score::sqrt_softplus) std::transform(rank.begin(), rank.end(), rank.begin(), score_sqrt_softplus);
      if (score == Score::softmax) {
        const float max = *std::max_element(rank.begin(), rank.end());
        float chains[32] = {};
        for (std::size_t e = 0; e < 72; ++e) chains[e % 32] += rank[e] = score_exp(rank[e] - max);
        const float sum = folded(chains, 0, 1);
        for (float& r : rank) r /= sum;
      }
      for (std::size_t e = 0; e < 72; ++e) rank[e] += bias[e];
      const std::vector<std::int32_t> order = descending(rank);
      ASSERT_TRUE(std::equal(&experts[t * 6], &experts[t * 6] + 6, order.begin())) << name(score) << " row " << t;
    }
  }
}

TEST(MoeRouteRandom, ATokenAloneIsRoutedAsInABatch) {
  for (const Score score : {Score::softmax, Score::softmax_after_top_k, Score::sigmoid, Score::sqrt_softplus}) {
    Host host(3);
    const RoutingRule rule{
        .top_k = 4, .score = score, .renormalize = true, .scale = 1.5F, .n_groups = 4, .top_groups = 2};
    Batch batch(host, 9, 32, rule, [](Rng& rng) { return rng.normal(); });
    batch.op.bias = host.values(DType::f32, {32}, 0.1);
    run(batch.op);
    for (std::int64_t t = 0; t < 9; ++t) {
      MoeRoute alone = batch.op;
      alone.logits = slice(batch.op.logits, 0, t, 1);
      alone.out = {.experts = host.out_i32({1, 4}), .weights = host.out_f32({1, 4})};
      run(alone);
      EXPECT_EQ(dense_bits(alone.out.experts), dense_bits(slice(batch.op.out.experts, 0, t, 1)));
      EXPECT_EQ(dense_bits(alone.out.weights), dense_bits(slice(batch.op.out.weights, 0, t, 1)));
    }
  }
}

}  // namespace
}  // namespace conclave::test
