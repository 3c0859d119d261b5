#include "report/routing_stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "trace_fixture.h"

namespace conclave {
namespace {

using test::small_trace;
using test::wheel_trace;

TEST(RoutingStats, LoadImbalanceEntropyAndUnused) {
  const RoutingStats stats = routing_stats(small_trace());
  const LayerStats& skewed = stats.layers[0];
  EXPECT_EQ(skewed.load, (std::vector<std::int64_t>{4, 4, 0, 0}));
  EXPECT_EQ(skewed.weight, (std::vector<double>{2.5, 1.5, 0, 0}));
  EXPECT_EQ(skewed.mean, 2.0);
  EXPECT_EQ(skewed.imbalance, 2.0);
  EXPECT_EQ(skewed.entropy, 1.0);
  EXPECT_EQ(skewed.evenness, 0.5);
  EXPECT_EQ(skewed.busiest, 0);
  EXPECT_EQ(skewed.unused, (std::vector<std::int32_t>{2, 3}));
  const LayerStats& even = stats.layers[1];
  EXPECT_EQ(even.imbalance, 1.0);
  EXPECT_EQ(even.entropy, 2.0);
  EXPECT_EQ(even.evenness, 1.0);
  EXPECT_TRUE(even.unused.empty());
  EXPECT_EQ(stats.max_relative, 2.0);
  EXPECT_EQ(stats.mean_evenness, 0.75);
  EXPECT_EQ(stats.mean_imbalance, 1.5);
  EXPECT_EQ(stats.n_unused, 2);
}

TEST(RoutingStats, OfLoadsAlone) {
  const LayerStats skewed = load_stats({4, 4, 0, 0});
  EXPECT_EQ(skewed.imbalance, 2.0);
  EXPECT_EQ(skewed.evenness, 0.5);
  EXPECT_EQ(skewed.unused, (std::vector<std::int32_t>{2, 3}));
  const LayerStats none = load_stats({0, 0});
  EXPECT_EQ(none.imbalance, 0.0);
  EXPECT_EQ(none.evenness, 0.0);
  EXPECT_EQ(none.unused.size(), 2U);
}

TEST(RoutingStats, AnUnevenDistributionByHand) {
  RoutingTrace trace = wheel_trace(1, 3, 1, 8);
  trace.experts = {2, 2, 2, 2, 1, 1, 2, 0};  // loads 1, 2, 5
  const LayerStats s = routing_stats(trace).layers[0];
  const double expected = -(1 / 8.0 * std::log2(1 / 8.0) + 2 / 8.0 * std::log2(2 / 8.0) + 5 / 8.0 * std::log2(5 / 8.0));
  EXPECT_NEAR(s.entropy, expected, 1e-12);
  EXPECT_NEAR(s.evenness, expected / std::log2(3.0), 1e-12);
  EXPECT_NEAR(s.imbalance, 15.0 / 8, 1e-12);
  EXPECT_EQ(s.busiest, 2);
}

TEST(RoutingStats, OneExpertIsEven) {
  const LayerStats s = routing_stats(wheel_trace(1, 1, 1, 1)).layers[0];
  EXPECT_EQ(s.entropy, 0.0);
  EXPECT_FALSE(std::signbit(s.entropy));
  EXPECT_EQ(s.evenness, 1.0);
  EXPECT_EQ(s.imbalance, 1.0);
}

TEST(RoutingStats, WeightsThatAreNoNumbersCountNothing) {
  RoutingTrace trace = small_trace();
  trace.weights[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(routing_stats(trace).layers[0].weight[0], 1.75);
}

TEST(RoutingStats, HeatPositionIsTheSquareRoot) {
  const RoutingStats stats = routing_stats(small_trace());
  EXPECT_EQ(heat_position(0, stats), 0.0);
  EXPECT_EQ(heat_position(0.5, stats), 0.5);
  EXPECT_EQ(heat_position(2, stats), 1.0);
}

TEST(RoutingStats, RangesAreShort) {
  const std::vector<std::int32_t> ids = {0, 1, 2, 3, 7, 12, 13};
  EXPECT_EQ(range_text(ids), "0-3, 7, 12, 13");
  EXPECT_EQ(range_text({}), "");
}

TEST(RoutingTrace, RefusesWhatDoesNotFitTogether) {
  EXPECT_NO_THROW(validate(small_trace()));
  const auto refused = [](auto&& change) {
    RoutingTrace trace = small_trace();
    change(trace);
    EXPECT_THROW(validate(trace), Error);
  };
  refused([](RoutingTrace& t) { t.n_layers = 0; });
  refused([](RoutingTrace& t) { t.n_experts = 0; });
  refused([](RoutingTrace& t) { t.n_experts = 1 << 30; });
  refused([](RoutingTrace& t) { t.top_k = 5; });
  refused([](RoutingTrace& t) { t.tokens.clear(); });
  refused([](RoutingTrace& t) { t.tokens.pop_back(); });
  refused([](RoutingTrace& t) { t.experts[3] = 4; });
  refused([](RoutingTrace& t) { t.experts[3] = -1; });
  refused([](RoutingTrace& t) { t.weights.pop_back(); });
  refused([](RoutingTrace& t) { t.layer_numbers.pop_back(); });
  try {
    RoutingTrace trace = small_trace();
    trace.experts[11] = 9;  // layer 3, token 1
    validate(trace);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "routing trace: layer 3, token 1: expert 9 is not in 0 to 3");
  }
}

TEST(RoutingTrace, TokensAreShownInOneLine) {
  EXPECT_EQ(shown_token(" a\tb\r\n"), " a\\tb\\r\\n");
  EXPECT_EQ(shown_token("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(shown_token("\xe2\x82"), "\\xe2\\x82");
  EXPECT_EQ(shown_token("\u4e16<b>"), "\u4e16<b>");
  EXPECT_EQ(shown_token(""), "");
}

}  // namespace
}  // namespace conclave
