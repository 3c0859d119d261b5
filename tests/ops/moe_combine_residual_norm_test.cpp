#include "ops/moe_combine_residual_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Floats = std::vector<float>;

// One token, one expert: residual (1, 2) + 2 * (1, 1) = (3, 4).
MoeCombineResidualNorm norm_example(Host& host) {
  return {
      .from = {.rows = host.f32({1, 2}, {1, 1}), .weights = host.f32({1, 1}, {2}), .pair_row = host.i32({1, 1}, {0})},
      .residual = host.f32({1, 2}, {1, 2}),
      .next = {.weight = host.f32({2}, {1, 10}), .out = host.out_f32({1, 2})}};
}

TEST(MoeCombineResidualNorm, AddsToTheResidualAndNormsTheNewOne) {
  Host host;
  const MoeCombineResidualNorm op = norm_example(host);
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{3, 4}));
  // The mean square is (9 + 16) / 2 = 12.5: 3 / sqrt(12.5) = 0.84852814, 10 * 4 / sqrt(12.5) = 11.313708.
  EXPECT_NEAR(floats_of(op.next.out)[0], 0.84852814F, 1e-6F);
  EXPECT_NEAR(floats_of(op.next.out)[1], 11.313708F, 1e-5F);
}

TEST(MoeCombineResidualNorm, AddsEpsToTheMeanSquare) {
  Host host;
  MoeCombineResidualNorm op = norm_example(host);
  op.next.eps = 12.5F;  // sqrt(25) = 5
  run(op);
  EXPECT_FLOAT_EQ(floats_of(op.next.out)[0], 0.6F);
  EXPECT_FLOAT_EQ(floats_of(op.next.out)[1], 8.0F);
}

TEST(MoeCombineResidualNorm, NormsTheResidualAsItWasStored) {
  Host host;
  MoeCombineResidualNorm op = norm_example(host);
  op.residual = host.bf16({1, 2}, {256, 0});  // 256 + 2 is 258, and 2 is 2
  op.from.weights = host.f32({1, 1}, {3});    // 256 + 3 = 259 is a tie between 258 and 260: 260, and 3
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{260, 3}));
  EXPECT_FLOAT_EQ(floats_of(op.next.out)[1], static_cast<float>(30 / std::sqrt((260.0 * 260 + 9) / 2 + 1e-6)));
}

TEST(MoeCombineResidualNorm, LeavesTokensPastLiveAlone) {
  Host host;
  const MoeCombineResidualNorm op{.from = {.rows = host.f32({2, 1}, {1, 1}),
                                           .weights = host.f32({2, 1}, {1, 1}),
                                           .pair_row = host.i32({2, 1}, {0, 1}),
                                           .live = host.live(1)},
                                  .residual = host.f32({2, 1}, {5, 5}),
                                  .next = {.weight = host.f32({1}, {1}), .out = host.out_f32({2, 1})}};
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{6, 5}));
  EXPECT_FLOAT_EQ(floats_of(op.next.out)[0], 1);
  EXPECT_TRUE(untouched(slice(op.next.out, 0, 1, 1)));
}

MoeCombineResidualNorm random_op(Host& host) {
  Rng& rng = host.rng;
  const RoutingShape shape = random_routing(rng, 9, 9);
  const std::int64_t n = shape.n_tokens, d = rng.integer(1, 6);
  const std::vector<std::int32_t> ids = make_ids(rng, shape);
  CombineInput from{.weights = host.values(DType::f32, {n, shape.top_k}),
                    .shared = rng.chance(0.5) ? host.values(random_float(rng), {n, d}) : Tensor{},
                    .live = live_tensor(host, shape)};
  if (rng.chance(0.5)) {
    from.rows = host.values(random_float(rng), {n * shape.top_k, d});
    from.pair_row = group_inputs(host, shape, ids).pair_row;
  } else {
    from.rows = host.values(random_float(rng), {n, shape.top_k, d});
    from.experts = ids_tensor(host, shape, ids);
    from.n_experts = shape.n_experts;
  }
  return {
      .from = from,
      .residual = host.values(random_float(rng), {n, d}),
      .next = {
          .weight = host.values(random_float(rng), {d}), .eps = 1e-5F, .out = host.output(random_float(rng), {n, d})}};
}

TEST(MoeCombineResidualNorm, IsMoeCombineResidualThenRmsNormBitForBit) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Host one(seed), two(seed);  // the same inputs, each in memory of its own
    const MoeCombineResidualNorm fused = random_op(one);
    const MoeCombineResidualNorm apart = random_op(two);
    run(fused);
    run(MoeCombineResidual{.from = apart.from, .residual = apart.residual});
    run(RmsNorm{.x = apart.residual,
                .weight = apart.next.weight,
                .live = apart.from.live,
                .eps = apart.next.eps,
                .out = apart.next.out});
    ASSERT_EQ(dense_bits(fused.residual), dense_bits(apart.residual)) << "seed " << seed;
    ASSERT_EQ(dense_bits(fused.next.out), dense_bits(apart.next.out)) << "seed " << seed;
  }
}

MoeCombineResidualNorm good_norm_op(Host& host) {
  return {.from = {.rows = host.values(DType::f32, {6, 4}),
                   .weights = host.values(DType::f32, {3, 2}),
                   .pair_row = host.integers({3, 2}, 0, 5),
                   .shared = host.values(DType::f32, {3, 4}),
                   .live = host.live(3)},
          .residual = host.values(DType::f32, {3, 4}),
          .next = {.weight = host.values(DType::f32, {4}), .out = host.out_f32({3, 4})}};
}

TEST(MoeCombineResidualNormRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_norm_op(host), {"shared", "live"});
  expect_bad_views_refused(good_norm_op(host));
}

TEST(MoeCombineResidualNormRefuses, WhateverItsTwoPartsRefuse) {
  Host host;
  const MoeCombineResidualNorm op = good_norm_op(host);
  const auto refused = [&](auto edit, std::string_view text) { expect_refusal(op, edit, text); };
  refused([&](auto& o) { o.residual = host.out_i32({3, 4}); }, "residual is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.residual = host.out_f32({3, 5}); }, "rows is [6,4], expected [6,5]");
  refused([&](auto& o) { o.from.weights = host.out_f32({3, 3}); }, "rows is [6,4], expected [9,4]");
  refused([&](auto& o) { o.from.experts = host.out_i32({3, 2}); }, "experts go with rows in slots: rows is packed");
  refused([&](auto& o) { o.next.weight = host.out_f32({3}); }, "weight is [3], expected [4]");
  refused([&](auto& o) { o.next.weight = host.out_i32({4}); }, "weight is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.next.out = host.out_f32({4, 3}); }, "out is [4,3], expected [3,4]");
  refused([&](auto& o) { o.next.out = host.out_i32({3, 4}); }, "out is i32, expected f32, f16, bf16");
  refused([](auto& o) { o.next.eps = 0; }, "eps is 0, expected a finite number above 0");
  refused([](auto& o) { o.next.eps = -1; }, "eps is -1, expected a finite number above 0");
  refused([](auto& o) { o.next.eps = INFINITY; }, "eps is inf, expected a finite number above 0");
  refused([](auto& o) { o.next.out = o.residual; },
          "moe_combine_residual_norm: residual is written and overlaps normed");
}

}  // namespace
}  // namespace conclave::test
