#include "ops/moe_combine_residual.h"

#include <gtest/gtest.h>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Floats = std::vector<float>;

// One token: 0.5 * (10, 20) + 0.25 * (4, 8) = (6, 12).
MoeCombineResidual residual_example(Host& host) {
  return {.from = {.rows = host.f32({2, 2}, {4, 8, /**/ 10, 20}),
                   .weights = host.f32({1, 2}, {0.5F, 0.25F}),
                   .pair_row = host.i32({1, 2}, {1, 0})},
          .residual = host.f32({1, 2}, {100, -12})};
}

TEST(MoeCombineResidual, AddsTheWeightedSumInPlace) {
  Host host;
  MoeCombineResidual op = residual_example(host);
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{106, 0}));
  op.from.shared = host.f32({1, 2}, {0.5F, 1});
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{112.5F, 13})) << "again, with the shared expert";
}

TEST(MoeCombineResidual, TakesRowsInSlots) {
  Host host;
  const MoeCombineResidual op{.from = {.rows = host.f32({1, 2, 1}, {3, 7}),
                                       .weights = host.f32({1, 2}, {2, 1}),
                                       .experts = host.i32({1, 2}, {0, -1}),
                                       .n_experts = 1},
                              .residual = host.f32({1, 1}, {10})};
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{16})) << "10 + 2 * 3, the second slot is invalid";
}

TEST(MoeCombineResidual, RoundsTheSumToF32BeforeItIsAdded) {
  Host host;
  // 1 + 2^-30 is 1 in f32. Added unrounded to -1 it would leave 2^-30.
  const MoeCombineResidual op{.from = {.rows = host.f32({2, 1}, {1, 0x1p-30F}),
                                       .weights = host.f32({1, 2}, {1, 1}),
                                       .pair_row = host.i32({1, 2}, {0, 1})},
                              .residual = host.f32({1, 1}, {-1})};
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{0}));
}

TEST(MoeCombineResidual, RoundsTheResultToTheResidualsType) {
  Host host;
  MoeCombineResidual op = residual_example(host);
  op.residual = host.bf16({1, 2}, {256, 1024});
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{262, 1040})) << "1024 + 12 = 1036: steps of 8, a tie, to even";
}

TEST(MoeCombineResidual, LeavesTokensPastLiveAlone) {
  Host host;
  const MoeCombineResidual op{.from = {.rows = host.f32({2, 1}, {1, 1}),
                                       .weights = host.f32({2, 1}, {1, 1}),
                                       .pair_row = host.i32({2, 1}, {0, 1}),
                                       .live = host.live(1)},
                              .residual = host.f32({2, 1}, {5, 5})};
  run(op);
  EXPECT_EQ(floats_of(op.residual), (Floats{6, 5}));
}

TEST(MoeCombineResidual, IsMoeCombineIntoF32ThenAddBitForBit) {
  Rng rng(111);
  for (int round = 0; round < 60; ++round) {
    Host host(static_cast<std::uint64_t>(round), round % 2 == 0 ? Layout::dense : Layout::padded);
    RoutingShape shape = random_routing(rng, 9, 9);
    shape.live.reset();
    const GroupInputs groups = group_inputs(host, shape, make_ids(rng, shape));
    const std::int64_t n = shape.n_tokens, d = rng.integer(1, 6);
    const CombineInput from{.rows = host.values(random_float(rng), {n * shape.top_k, d}),
                            .weights = host.values(DType::f32, {n, shape.top_k}),
                            .pair_row = groups.pair_row,
                            .shared = rng.chance(0.5) ? host.values(random_float(rng), {n, d}) : Tensor{}};
    const MoeCombineResidual op{.from = from, .residual = host.values(random_float(rng), {n, d})};
    const MoeCombine combine{.from = from, .out = host.out_f32({n, d})};
    run(combine);
    const Add add{.a = op.residual, .b = combine.out, .out = host.output(op.residual.dtype, {n, d})};
    run(add);
    run(op);
    ASSERT_EQ(dense_bits(op.residual), dense_bits(add.out)) << "round " << round;
  }
}

MoeCombineResidual good_residual_op(Host& host) {
  MoeCombineResidual op{.from = {.rows = host.values(DType::f32, {6, 4}),
                                 .weights = host.values(DType::f32, {3, 2}),
                                 .pair_row = host.integers({3, 2}, 0, 5),
                                 .shared = host.values(DType::f32, {3, 4}),
                                 .live = host.live(3)},
                        .residual = host.values(DType::f32, {3, 4})};
  return op;
}

TEST(MoeCombineResidualRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_residual_op(host), {"shared", "live"});
  expect_bad_views_refused(good_residual_op(host));
}

TEST(MoeCombineResidualRefuses, WrongTypesAndShapes) {
  Host host;
  const MoeCombineResidual op = good_residual_op(host);
  const auto refused = [&](auto edit, const std::string& text) {
    expect_refusal(op, edit, "moe_combine_residual: " + text);
  };
  refused([&](auto& o) { o.residual = host.out_f32({12}); }, "residual is [12], expected [any,any]");
  refused([&](auto& o) { o.residual = host.out_i32({3, 4}); }, "residual is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.residual = host.out_f32({3, 5}); }, "rows is [6,4], expected [6,5]");
  refused([&](auto& o) { o.residual = host.out_f32({2, 4}); }, "weights is [3,2], expected [2,any]");
  refused([&](auto& o) { o.from.shared = host.out_f32({3, 5}); }, "shared is [3,5], expected [3,4]");
  refused([&](auto& o) { o.from.experts = host.out_i32({3, 2}); }, "experts go with rows in slots: rows is packed");
  refused([&](auto& o) { o.from.live = host.out_f32({1}); }, "live is f32, expected i32");
  refused([](auto& o) { o.from.shared = o.residual; }, "residual is written and overlaps shared");
}

}  // namespace
}  // namespace conclave::test
