#include "ops/moe_ffn.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

struct Shape {
  std::int64_t n_tokens = 3;
  std::int64_t d_model = 4;
  std::int64_t d_ff = 5;
  std::int64_t d_shared = 6;
  std::int64_t n_experts = 6;
  RoutingRule rule{.top_k = 2};
  bool shared = true;
  bool norm = true;
};

// The members that an op of this shape writes.
void make_outputs(Host& host, const Shape& shape, MoeFfn& op) {
  const std::int64_t n = shape.n_tokens, top_k = shape.rule.top_k;
  op.routing = {
      .experts = host.out_i32({n, top_k}),
      .weights = host.out_f32({n, top_k}),
      .no_finite = host.i32({1}, {7}),
      .counts = host.i32({shape.n_experts}, std::vector<std::int32_t>(static_cast<std::size_t>(shape.n_experts), 3))};
  op.groups = {.offsets = host.out_i32({shape.n_experts + 1}),
               .row_pair = host.out_i32({n * top_k}),
               .pair_row = host.out_i32({n, top_k})};
  op.hidden = host.out_f32({n * top_k, shape.d_ff});
  op.expert_out = host.out_f32({n * top_k, shape.d_model});
  if (shape.shared) {
    op.shared_hidden = host.out_f32({n, shape.d_shared});
    op.shared_out = host.out_f32({n, shape.d_model});
  }
  if (shape.norm) op.next.out = host.out_f32({n, shape.d_model});
}

MoeFfn make_ffn(Host& host, const Shape& shape, DType weights = DType::f32) {
  const std::int64_t d = shape.d_model;
  MoeFfn op{.x = host.values(DType::f32, {shape.n_tokens, d}),
            .logits = host.values(DType::f32, {shape.n_tokens, shape.n_experts}),
            .bias = host.values(DType::f32, {shape.n_experts}, 0.1),
            .expert_scale = host.values(DType::f32, {shape.n_experts}),
            .live = host.live(shape.n_tokens),
            .rule = shape.rule,
            .gate = host.weights(weights, {shape.n_experts, shape.d_ff, d}),
            .up = host.weights(weights, {shape.n_experts, shape.d_ff, d}),
            .down = host.weights(weights, {shape.n_experts, d, shape.d_ff})};
  if (shape.shared) {
    op.shared = {.gate = host.weights(weights, {shape.d_shared, d}),
                 .up = host.weights(weights, {shape.d_shared, d}),
                 .down = host.weights(weights, {d, shape.d_shared}),
                 .gate_inp = host.values(DType::f32, {d})};
  }
  op.residual = host.values(DType::f32, {shape.n_tokens, d});
  if (shape.norm) op.next.weight = host.values(DType::f32, {d});
  make_outputs(host, shape, op);
  return op;
}

TEST(MoeFfn, RoutesMultipliesCombinesAndNorms) {
  Host host;
  // x = (1, 2) goes to expert 1 alone: gate x1 = 2, up 3 x0 = 3, hidden silu(2) * 3 = 5.2847825; down gives (1, -2) times
  // that, so the residual (10, 10) becomes (15.284783, -0.56956506). Its root mean square is 10.815483.
  const Shape shape{
      .n_tokens = 1, .d_model = 2, .d_ff = 1, .n_experts = 2, .rule = {.renormalize = true}, .shared = false};
  MoeFfn op{.x = host.f32({1, 2}, {1, 2}),
            .logits = host.f32({1, 2}, {0, 5}),
            .rule = shape.rule,
            .gate = host.f32({2, 1, 2}, {7, 7, /**/ 0, 1}),
            .up = host.f32({2, 1, 2}, {7, 7, /**/ 3, 0}),
            .down = host.f32({2, 2, 1}, {7, 7, /**/ 1, -2}),
            .residual = host.f32({1, 2}, {10, 10})};
  op.next.weight = host.f32({2}, {1, 10});
  make_outputs(host, shape, op);
  run(op);
  EXPECT_EQ(ints_of(op.routing.experts), (std::vector<std::int32_t>{1}));
  EXPECT_EQ(floats_of(op.routing.weights), (std::vector<float>{1}));
  EXPECT_NEAR(floats_of(op.residual)[0], 15.284783F, 2e-6F);
  EXPECT_NEAR(floats_of(op.residual)[1], -0.56956506F, 2e-6F);
  EXPECT_NEAR(floats_of(op.next.out)[0], 1.4132327F, 1e-6F);
  EXPECT_NEAR(floats_of(op.next.out)[1], -0.52662038F, 2e-6F);
}

TEST(MoeFfn, AddsTheSharedExpertOfEveryToken) {
  Host with(5), without(5);
  const Shape shape;
  const MoeFfn op = make_ffn(with, shape);
  MoeFfn plain = make_ffn(without, shape);
  plain.shared = {};
  plain.shared_hidden = plain.shared_out = {};
  run(op);
  run(plain);
  const std::vector<float> sum = floats_of(op.residual), routed = floats_of(plain.residual),
                           shared = floats_of(op.shared_out);
  for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_NEAR(sum[i], routed[i] + shared[i], 1e-6F);
}

TEST(MoeFfn, SequenceOfNamesTheOpsItStandsForAndPassesEveryMemberOn) {
  Host host;
  MoeFfn op = make_ffn(host, {.rule = {.top_k = 2, .score = Score::sigmoid, .scale = 3}});
  op.act = Activation::gelu;
  op.next.eps = 0.5F;
  const MoeFfnSequence ops = sequence_of(op);

  EXPECT_EQ(ops.route.logits, op.logits);
  EXPECT_EQ(ops.route.bias, op.bias);
  EXPECT_EQ(ops.route.expert_scale, op.expert_scale);
  EXPECT_EQ(ops.route.live, op.live);
  EXPECT_EQ(ops.route.rule.score, Score::sigmoid);
  EXPECT_EQ(ops.route.rule.scale, 3);
  EXPECT_EQ(ops.route.out.experts, op.routing.experts);
  EXPECT_EQ(ops.route.out.weights, op.routing.weights);
  EXPECT_EQ(ops.route.out.no_finite, op.routing.no_finite);
  EXPECT_EQ(ops.route.out.counts, op.routing.counts);

  EXPECT_EQ(ops.group.experts, op.routing.experts);
  EXPECT_EQ(ops.group.live, op.live);
  EXPECT_EQ(ops.group.n_experts, 6);
  EXPECT_EQ(ops.group.out.pair_row, op.groups.pair_row);

  EXPECT_EQ(ops.gate_up.x, op.x);
  EXPECT_EQ(ops.gate_up.gate, op.gate);
  EXPECT_EQ(ops.gate_up.up, op.up);
  EXPECT_EQ(ops.gate_up.top_k, 2);
  EXPECT_EQ(ops.gate_up.act, Activation::gelu);
  EXPECT_EQ(ops.gate_up.out, op.hidden);

  EXPECT_EQ(ops.down.x, op.hidden);
  EXPECT_EQ(ops.down.down, op.down);
  EXPECT_EQ(ops.down.out, op.expert_out);

  ASSERT_TRUE(ops.shared.has_value());
  EXPECT_EQ(ops.shared->x, op.x);
  EXPECT_EQ(ops.shared->gate, op.shared.gate);
  EXPECT_EQ(ops.shared->up, op.shared.up);
  EXPECT_EQ(ops.shared->down, op.shared.down);
  EXPECT_EQ(ops.shared->gate_inp, op.shared.gate_inp);
  EXPECT_EQ(ops.shared->live, op.live);
  EXPECT_EQ(ops.shared->act, Activation::gelu);
  EXPECT_EQ(ops.shared->out, op.shared_out);

  ASSERT_TRUE(std::holds_alternative<MoeCombineResidualNorm>(ops.combine));
  const auto& combine = std::get<MoeCombineResidualNorm>(ops.combine);
  EXPECT_EQ(combine.from.rows, op.expert_out);
  EXPECT_EQ(combine.from.weights, op.routing.weights);
  EXPECT_EQ(combine.from.pair_row, op.groups.pair_row);
  EXPECT_EQ(combine.from.shared, op.shared_out);
  EXPECT_EQ(combine.from.live, op.live);
  EXPECT_EQ(combine.residual, op.residual);
  EXPECT_EQ(combine.next.weight, op.next.weight);
  EXPECT_EQ(combine.next.eps, 0.5F);
  EXPECT_EQ(combine.next.out, op.next.out);
}

TEST(MoeFfn, SequenceOfHasNoSharedExpertAndNoNormWhereThereIsNone) {
  Host host;
  const MoeFfnSequence few = sequence_of(make_ffn(host, {.shared = false, .norm = false}));
  EXPECT_FALSE(few.shared.has_value());
  ASSERT_TRUE(std::holds_alternative<MoeCombineResidual>(few.combine));
  EXPECT_FALSE(std::get<MoeCombineResidual>(few.combine).from.shared.defined());
}

void expect_same_results(const MoeFfn& got, const MoeFfn& want) {
  EXPECT_EQ(dense_bits(got.routing.experts), dense_bits(want.routing.experts));
  EXPECT_EQ(dense_bits(got.routing.weights), dense_bits(want.routing.weights));
  EXPECT_EQ(dense_bits(got.routing.no_finite), dense_bits(want.routing.no_finite));
  EXPECT_EQ(dense_bits(got.residual), dense_bits(want.residual));
  if (got.next.out.defined()) {
    EXPECT_EQ(dense_bits(got.next.out), dense_bits(want.next.out));
  }
}

TEST(MoeFfn, IsItsSequenceRunOneByOneBitForBit) {
  Rng rng(121);
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const DType weights = rng.pick(weight_formats());
    const Shape shape{.n_tokens = rng.integer(0, 6),
                      .d_model = width_for(weights, rng.integer(1, 9)),
                      .d_ff = width_for(weights, rng.integer(1, 9)),
                      .d_shared = width_for(weights, rng.integer(1, 9)),
                      .rule = {.top_k = rng.integer(1, 4),
                               .score = static_cast<Score>(rng.integer(0, 3)),
                               .renormalize = rng.chance(0.5),
                               .scale = 1.5F,
                               .n_groups = 3,
                               .top_groups = 2},
                      .shared = seed % 2 == 0,
                      .norm = seed % 4 < 2};
    const std::int64_t live = rng.integer(-1, shape.n_tokens + 1);
    const auto make = [&](Host& host) {  // the same inputs, each time in memory of its own
      MoeFfn op = make_ffn(host, shape, weights);
      op.live = host.live(live);
      op.act = seed % 3 == 0 ? Activation::gelu : Activation::silu;
      return op;
    };
    Host one(seed), two(seed);
    const MoeFfn fused = make(one);
    const MoeFfn apart = make(two);
    run(fused);
    const MoeFfnSequence ops = sequence_of(apart);
    run(ops.route);
    run(ops.group);
    run(ops.gate_up);
    run(ops.down);
    if (ops.shared) run(*ops.shared);
    std::visit([](const auto& combine) { run(combine); }, ops.combine);
    expect_same_results(fused, apart);
    EXPECT_EQ(ints_of(fused.routing.counts), ints_of(apart.routing.counts));
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

TEST(MoeFfn, ATokenAloneGivesWhatItGivesInABatchBitForBit) {
  for (const DType weights : {DType::f32, DType::q4_k, DType::q8_0}) {
    Host host(9);
    Shape shape{.n_tokens = 7, .d_model = 256, .d_ff = 256, .d_shared = 256};
    const MoeFfn batch = make_ffn(host, shape, weights);
    const std::vector<float> before = floats_of(batch.residual);
    run(batch);
    shape.n_tokens = 1;
    for (std::int64_t t = 0; t < 7; ++t) {
      MoeFfn alone = batch;
      alone.x = slice(batch.x, 0, t, 1);
      alone.logits = slice(batch.logits, 0, t, 1);
      alone.live = host.live(1);
      alone.residual = host.f32({1, 256}, {before.begin() + t * 256, before.begin() + (t + 1) * 256});
      make_outputs(host, shape, alone);
      run(alone);
      MoeFfn want = batch;
      want.routing.experts = slice(batch.routing.experts, 0, t, 1);
      want.routing.weights = slice(batch.routing.weights, 0, t, 1);
      want.residual = slice(batch.residual, 0, t, 1);
      want.next.out = slice(batch.next.out, 0, t, 1);
      expect_same_results(alone, want);
    }
  }
}

TEST(MoeFfn, LeavesTokensPastLiveAlone) {
  Host host(3);
  MoeFfn op = make_ffn(host, {});
  op.live = host.live(1);
  const std::vector<float> before = floats_of(op.residual);
  run(op);
  const std::vector<float> after = floats_of(op.residual);
  EXPECT_NE(after[0], before[0]);
  EXPECT_TRUE(std::equal(after.begin() + 4, after.end(), before.begin() + 4));
  EXPECT_TRUE(untouched(slice(op.routing.experts, 0, 1, 2)));
  EXPECT_TRUE(untouched(slice(op.next.out, 0, 1, 2)));
}

TEST(MoeFfn, CountsRowsWithoutALogitOnTopOfWhatWasCounted) {
  Host host(3);
  MoeFfn op = make_ffn(host, {.n_tokens = 2, .n_experts = 2});
  op.logits = host.f32({2, 2}, {NAN, -INFINITY, 1, 2});
  run(op);
  EXPECT_EQ(ints_of(op.routing.no_finite), (std::vector<std::int32_t>{8}));
  const std::vector<std::int32_t> counts = ints_of(op.routing.counts);
  EXPECT_EQ(counts[0] + counts[1], 6 + 2 * op.rule.top_k);
}

// ---- refusals

TEST(MoeFfnRefuses, BadViews) {
  Host host;
  expect_bad_views_refused(make_ffn(host, {}));
}

TEST(MoeFfnRefuses, MissingTensors) {
  Host host;
  const MoeFfn op = make_ffn(host, {});
  const std::vector<std::pair<std::string_view, std::string_view>> missing = {
      {"x", "moe_ffn: x is missing"},
      {"logits", "moe_ffn: logits is missing"},
      {"gate", "moe_ffn: gate is missing"},
      {"up", "up is missing"},
      {"down", "moe_ffn: down is missing"},
      {"shared_gate", "moe_ffn: parts of a shared expert are given, but shared_gate is missing"},
      {"shared_up", "shared_up is missing"},
      {"shared_down", "shared_down is missing"},
      {"experts", "experts is missing"},
      {"weights", "weights is missing"},
      {"offsets", "offsets is missing"},
      {"row_pair", "row_pair is missing"},
      {"pair_row", "pair_row is missing"},
      {"hidden", "out is missing"},
      {"expert_out", "out is missing"},
      {"shared_hidden", "shared_hidden is missing"},
      {"shared_out", "out is missing"},
      {"residual", "residual is missing"},
      {"norm_weight", "moe_ffn: normed is given, but norm_weight is missing"},
      {"normed", "normed is missing"},
  };
  const auto without = [&](std::string_view name) { return with_member(op, name, [](Tensor& t) { t = {}; }); };
  for (const auto& [name, text] : missing) expect_refusal(without(name), text);
  for (const std::string_view name : {"bias", "expert_scale", "live", "shared_gate_inp", "no_finite", "counts"}) {
    EXPECT_EQ(refusal_of(without(name)), "(accepted)") << name;
  }
  EXPECT_EQ(accesses(op).size(), missing.size() + 6) << "every member is in one of the lists";
}

TEST(MoeFfnRefuses, PartsThatDoNotFitTogether) {
  Host host;
  const MoeFfn op = make_ffn(host, {});
  const auto refused = [&](auto edit, std::string_view text) { expect_refusal(op, edit, text); };
  refused([&](auto& o) { o.x = host.out_f32({12}); }, "moe_ffn: x is [12], expected [any,any]");
  refused([&](auto& o) { o.x = host.out_i32({3, 4}); }, "moe_ffn: x is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.logits = host.out_f32({2, 6}); }, "moe_ffn: logits is [2,6], expected [3,any]");
  refused([&](auto& o) { o.logits = host.out_i32({3, 6}); }, "moe_ffn: logits is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.gate = host.out_f32({5, 5, 4}); }, "moe_ffn: gate is [5,5,4], expected [6,any,4]");
  refused([&](auto& o) { o.gate = host.out_i32({6, 5, 4}); }, "moe_ffn: gate is i32, expected f32, f16, bf16, q4_0");
  refused([&](auto& o) { o.up = host.out_f32({6, 4, 4}); }, "up is [6,4,4], expected [6,5,4]");
  refused([&](auto& o) { o.down = host.out_f32({6, 5, 4}); }, "moe_ffn: down is [6,5,4], expected [6,4,5]");
  refused([&](auto& o) { o.down = host.out_i32({6, 4, 5}); }, "moe_ffn: down is i32, expected f32, f16, bf16, q4_0");
  refused([](auto& o) { o.rule.top_k = 7; }, "top_k is 7, expected 1 to 6");
  refused([](auto& o) { o.rule.n_groups = 4; }, "4 groups do not divide 6 experts");
  refused([&](auto& o) { o.bias = host.out_f32({5}); }, "bias is [5], expected [6]");
  refused([&](auto& o) { o.expert_scale = host.out_i32({6}); }, "expert_scale is i32, expected f32");
  refused([&](auto& o) { o.live = host.out_f32({1}); }, "live is f32, expected i32");
  refused([&](auto& o) { o.routing.weights = host.out_f32({3, 3}); }, "weights is [3,3], expected [3,2]");
  refused([&](auto& o) { o.groups.offsets = host.out_i32({6}); }, "offsets is [6], expected [7]");
  refused([&](auto& o) { o.hidden = host.out_f32({6, 4}); }, "out is [6,4], expected [6,5]");
  refused([&](auto& o) { o.expert_out = host.out_f32({6, 5}); }, "expert_out is [6,5], expected [any,4]");
  refused([&](auto& o) { o.shared.up = host.out_f32({5, 4}); }, "shared_up is [5,4], expected [6,4]");
  refused([&](auto& o) { o.shared.gate_inp = host.out_f32({6}); }, "shared_gate_inp is [6], expected [4]");
  refused([&](auto& o) { o.shared_hidden = host.out_f32({3, 5}); }, "shared_hidden is [3,5], expected [3,6]");
  refused([&](auto& o) { o.shared_out = host.out_f32({3, 6}); }, "out is [3,6], expected [3,4]");
  refused([&](auto& o) { o.residual = host.out_f32({3, 5}); }, "rows is [6,4], expected [6,5]");
  refused([&](auto& o) { o.next.weight = host.out_f32({5}); }, "weight is [5], expected [4]");
  refused([](auto& o) { o.next.eps = 0; }, "eps is 0, expected a finite number above 0");
}

// Waits for a decision: the header lists f32 and bf16 for expert_out and f32 for shared_out, validate() takes f16 for both.
TEST(MoeFfnRefuses, ScratchOfTypesThatTheHeaderDoesNotList) {
  Host host;
  const MoeFfn op = make_ffn(host, {});
  expect_refusal(
      op,
      [&](auto& o) {
        o.expert_out = host.output(DType::f16, {6, 4});
      },
      "expert_out is f16");
  expect_refusal(
      op,
      [&](auto& o) {
        o.shared_out = host.output(DType::f16, {3, 4});
      },
      "shared_out is f16");
}

TEST(MoeFfnRefuses, PartsOfASharedExpertOrOfANormWithoutItsFirst) {
  Host host;
  const MoeFfn op = make_ffn(host, {.shared = false, .norm = false});
  const std::string_view shared = "moe_ffn: parts of a shared expert are given, but shared_gate is missing";
  expect_refusal(
      op,
      [&](auto& o) {
        o.shared.up = host.out_f32({6, 4});
      },
      shared);
  expect_refusal(
      op,
      [&](auto& o) {
        o.shared.down = host.out_f32({4, 6});
      },
      shared);
  expect_refusal(
      op, [&](auto& o) { o.shared.gate_inp = host.out_f32({4}); }, shared);
  expect_refusal(
      op,
      [&](auto& o) {
        o.shared_hidden = host.out_f32({3, 6});
      },
      shared);
  expect_refusal(
      op,
      [&](auto& o) {
        o.shared_out = host.out_f32({3, 4});
      },
      shared);
  expect_refusal(
      op,
      [&](auto& o) {
        o.next.out = host.out_f32({3, 4});
      },
      "moe_ffn: normed is given, but norm_weight is missing");
}

}  // namespace
}  // namespace conclave::test
