#include "ops/moe_route_to_host.h"

#include <gtest/gtest.h>

#include "op_test_support.h"

namespace conclave::test {
namespace {

MoeRouteToHost good_route_to_host(Host& host) {
  return {
      .logits = host.values(DType::f32, {3, 6}),
      .bias = host.values(DType::f32, {6}, 0.2),
      .expert_scale = host.values(DType::f32, {6}),
      .live = host.live(3),
      .rule = {.top_k = 2, .score = Score::sigmoid, .renormalize = true, .scale = 2, .n_groups = 3, .top_groups = 2},
      .out = {.experts = host.out_i32({3, 2}), .weights = host.out_f32({3, 2})}};
}

TEST(MoeRouteToHost, PutsTheBestExpertsIntoHostMemory) {
  Host host;
  const MoeRouteToHost op{.logits = host.f32({2, 3}, {1, 3, 2, 5, 5, 5}),
                          .rule = {.top_k = 2, .score = Score::softmax_after_top_k},
                          .out = {.experts = host.out_i32({2, 2}), .weights = host.out_f32({2, 2})}};
  run(op);
  EXPECT_EQ(ints_of(op.out.experts), (std::vector<std::int32_t>{1, 2, 0, 1}));
  const std::vector<float> weights = floats_of(op.out.weights);
  EXPECT_FLOAT_EQ(weights[0], 0.73105858F) << "1 / (1 + 1/e)";
  EXPECT_FLOAT_EQ(weights[1], 0.26894142F);
  EXPECT_EQ(weights[2], 0.5F);
  EXPECT_EQ(weights[3], 0.5F);
}

TEST(MoeRouteToHost, IsMoeRouteBitForBit) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Host host(seed);
    const MoeRouteToHost op = good_route_to_host(host);
    MoeRoute plain = op.route();
    plain.out = {.experts = host.out_i32({3, 2}), .weights = host.out_f32({3, 2})};
    run(op);
    run(plain);
    EXPECT_EQ(dense_bits(op.out.experts), dense_bits(plain.out.experts));
    EXPECT_EQ(dense_bits(op.out.weights), dense_bits(plain.out.weights));
  }
}

TEST(MoeRouteToHost, LeavesTokensPastLiveAlone) {
  Host host;
  MoeRouteToHost op = good_route_to_host(host);
  op.live = host.live(1);
  run(op);
  EXPECT_FALSE(untouched(slice(op.out.experts, 0, 0, 1)));
  EXPECT_TRUE(untouched(slice(op.out.experts, 0, 1, 2)));
  EXPECT_TRUE(untouched(slice(op.out.weights, 0, 1, 2)));
}

TEST(MoeRouteToHost, ScratchIsAnIdAndAWeightForEveryPair) {
  Host host;
  EXPECT_EQ(good_route_to_host(host).scratch_bytes(), 3 * 2 * (4 + 4));
}

TEST(MoeRouteToHostRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_route_to_host(host), {"bias", "expert_scale", "live"});
  expect_bad_views_refused(good_route_to_host(host));
}

TEST(MoeRouteToHostRefuses, ResultsThatWouldNotBeInHostMemory) {
  Host host;
  DeviceOnlyBuffer device(64);
  const auto moved = [&](std::string_view name) {
    return with_member(good_route_to_host(host), name, [&](Tensor& t) { t.buffer = &device, t.byte_offset = 0; });
  };
  expect_refusal(moved("experts"), "moe_route_to_host: experts is not in host memory");
  expect_refusal(moved("weights"), "moe_route_to_host: weights is not in host memory");
  EXPECT_EQ(refusal_of(moved("live")), "(accepted)") << "inputs may be anywhere";
}

TEST(MoeRouteToHostRefuses, ACounterAndWhateverMoeRouteRefuses) {
  Host host;
  const MoeRouteToHost op = good_route_to_host(host);
  const auto refused = [&](auto edit, std::string_view text) { expect_refusal(op, edit, text); };
  refused([&](auto& o) { o.out.no_finite = host.out_i32({1}); },
          "moe_route_to_host: no_finite is a device-side counter: use moe_route");
  refused([&](auto& o) { o.out.counts = host.out_i32({6}); },
          "moe_route_to_host: counts is a device-side counter: use moe_route");
  refused([](auto& o) { o.rule.top_k = 7; }, "top_k is 7, expected 1 to 6");
  refused([](auto& o) { o.rule.n_groups = 4; }, "4 groups do not divide 6 experts");
  refused([](auto& o) { o.rule.top_groups = 4; }, "top_groups is 4, expected 1 to 3");
  refused([&](auto& o) { o.bias = host.out_f32({5}); }, "bias is [5], expected [6]");
  refused([&](auto& o) { o.out.weights = host.out_f32({3, 1}); }, "weights is [3,1], expected [3,2]");
  refused([&](auto& o) { o.logits = host.out_i32({3, 6}); }, "logits is i32, expected f32, f16, bf16");
}

}  // namespace
}  // namespace conclave::test
