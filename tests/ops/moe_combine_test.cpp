#include "ops/moe_combine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Floats = std::vector<float>;

// Token 0 sums half of row 2 and a quarter of row 0; token 1 twice row 1, its second slot is invalid.
CombineInput packed_example(Host& host) {
  return {.rows = host.f32({4, 2}, {4, 8, /**/ 1, -1, /**/ 10, 20, /**/ kNan, kNan}),
          .weights = host.f32({2, 2}, {0.5F, 0.25F, /**/ 2, 9}),
          .pair_row = host.i32({2, 2}, {2, 0, /**/ 1, -1})};
}
// The same with the rows in their slots.
CombineInput slots_example(Host& host) {
  return {.rows = host.f32({2, 2, 2}, {10, 20, 4, 8, /**/ 1, -1, kNan, kNan}),
          .weights = host.f32({2, 2}, {0.5F, 0.25F, /**/ 2, 9}),
          .experts = host.i32({2, 2}, {5, 0, /**/ 3, 6}),
          .n_experts = 6};
}

Floats combined(Host& host, const CombineInput& from) {
  const MoeCombine op{.from = from, .out = host.out_f32({from.weights.dim(0), from.rows.inner()})};
  run(op);
  return floats_of(op.out);
}

TEST(MoeCombine, SumsPackedRowsByWeight) {
  Host host;
  EXPECT_EQ(combined(host, packed_example(host)), (Floats{0.5F * 10 + 0.25F * 4, 0.5F * 20 + 0.25F * 8, /**/ 2, -2}));
}

TEST(MoeCombine, SumsSlotsByWeight) {
  Host host;
  EXPECT_EQ(combined(host, slots_example(host)), (Floats{6, 12, /**/ 2, -2}));
}

TEST(MoeCombine, AddsTheSharedExpert) {
  Host host;
  for (CombineInput from : {packed_example(host), slots_example(host)}) {
    from.shared = host.bf16({2, 2}, {100, 200, 0.5F, 0.25F});
    EXPECT_EQ(combined(host, from), (Floats{106, 212, 2.5F, -1.75F}));
  }
}

TEST(MoeCombine, ATokenWithoutAValidSlotGetsZeroOrTheSharedExpertAlone) {
  Host host;
  CombineInput packed = packed_example(host);
  packed.pair_row = host.i32({2, 2}, {-1, -1, 4, INT32_MIN});
  EXPECT_EQ(combined(host, packed), (Floats{0, 0, 0, 0}));
  CombineInput slots = slots_example(host);
  slots.experts = host.i32({2, 2}, {-1, 6, INT32_MAX, INT32_MIN});
  EXPECT_EQ(combined(host, slots), (Floats{0, 0, 0, 0}));
  slots.shared = host.f32({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(combined(host, slots), (Floats{1, 2, 3, 4}));
}

TEST(MoeCombine, SumsInSlotOrderAndTheSharedExpertLast) {
  Host host;
  // In f64, 2^60 + 1 is 2^60: the 1 survives only where it is added after 2^60 - 2^60.
  CombineInput from{.rows = host.f32({1, 3, 1}, {0x1p60F, -0x1p60F, 1}),
                    .weights = host.f32({1, 3}, {1, 1, 1}),
                    .experts = host.i32({1, 3}, {0, 1, 2}),
                    .n_experts = 3};
  EXPECT_EQ(combined(host, from), (Floats{1}));
  from.experts = host.i32({1, 3}, {0, 1, -1});
  from.shared = host.f32({1, 1}, {1});
  EXPECT_EQ(combined(host, from), (Floats{1}));
}

TEST(MoeCombine, LargeActivationsStayFinite) {
  Host host;
  const CombineInput from{.rows = host.f32({1, 2, 1}, {3e38F, -3e38F}),
                          .weights = host.f32({1, 2}, {4, 4}),
                          .experts = host.i32({1, 2}, {0, 0}),
                          .n_experts = 1};
  EXPECT_EQ(combined(host, from), (Floats{0}));
}

TEST(MoeCombine, LeavesTokensPastLiveAlone) {
  Host host;
  MoeCombine op{.from = packed_example(host), .out = host.out_f32({2, 2})};
  op.from.live = host.live(1);
  run(op);
  EXPECT_EQ(floats_of(slice(op.out, 0, 0, 1)), (Floats{6, 12}));
  EXPECT_TRUE(untouched(slice(op.out, 0, 1, 1)));
}

TEST(MoeCombine, TakesNoTokens) {
  Host host;
  EXPECT_EQ(
      combined(host, {.rows = host.f32({0, 2}, {}), .weights = host.f32({0, 3}, {}), .pair_row = host.i32({0, 3}, {})}),
      Floats{});
}

TEST(MoeCombine, PackedRowsAndSlotsGiveTheSameBitsAndATokenAloneToo) {
  Rng rng(101);
  for (int round = 0; round < 100; ++round) {
    Host host(static_cast<std::uint64_t>(round), round % 2 == 0 ? Layout::dense : Layout::padded);
    const RoutingShape shape = random_routing(rng, 9, 9);
    const std::vector<std::int32_t> ids = make_ids(rng, shape);
    const GroupInputs groups = group_inputs(host, shape, ids);
    const std::int64_t n = shape.n_tokens, top_k = shape.top_k, d = rng.integer(1, 6);
    const DType type = random_float(rng), out = random_float(rng);
    const Tensor slots = host.values(type, {n, top_k, d});
    const Floats by_pair = floats_of(slots);
    Floats packed(by_pair.size());
    const std::vector<std::int32_t> row_pair = ints_of(groups.row_pair);
    for (std::size_t r = 0; r < row_pair.size() && row_pair[r] >= 0; ++r) {
      std::copy_n(by_pair.begin() + row_pair[r] * d, d, packed.begin() + static_cast<std::ptrdiff_t>(r) * d);
    }
    const CombineInput from_slots{.rows = slots,
                                  .weights = host.values(DType::f32, {n, top_k}),
                                  .experts = ids_tensor(host, shape, ids),
                                  .n_experts = shape.n_experts,
                                  .shared = rng.chance(0.5) ? host.values(DType::f32, {n, d}) : Tensor{},
                                  .live = live_tensor(host, shape)};
    CombineInput from_packed = from_slots;
    from_packed.rows = host.floats(type, {n * top_k, d}, packed);
    from_packed.experts = {};
    from_packed.pair_row = groups.pair_row;
    const MoeCombine a{.from = from_slots, .out = host.output(out, {n, d})};
    const MoeCombine b{.from = from_packed, .out = host.output(out, {n, d})};
    run(a);
    run(b);
    ASSERT_EQ(dense_bits(a.out), dense_bits(b.out)) << "round " << round;

    if (n == 0 || shape.live) continue;
    CombineInput one = from_slots;
    for (Tensor* t : {&one.rows, &one.weights, &one.experts}) *t = slice(*t, 0, n - 1, 1);
    if (one.shared.defined()) one.shared = slice(one.shared, 0, n - 1, 1);
    const MoeCombine alone{.from = one, .out = host.output(out, {1, d})};
    run(alone);
    ASSERT_EQ(dense_bits(alone.out), dense_bits(slice(a.out, 0, n - 1, 1)));
  }
}

// ---- refusals

MoeCombine good_packed(Host& host) {
  MoeCombine op{.from = packed_example(host), .out = host.out_f32({2, 2})};
  op.from.shared = host.values(DType::f16, {2, 2});
  op.from.live = host.live(2);
  return op;
}
MoeCombine good_slots(Host& host) {
  return {.from = slots_example(host), .out = host.output(DType::bf16, {2, 2})};
}

TEST(MoeCombineRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_packed(host), {"shared", "live"});
  expect_all_needed_but(good_slots(host), {});
  expect_bad_views_refused(good_packed(host));
  expect_bad_views_refused(good_slots(host));
}

TEST(MoeCombineRefuses, WrongTypesAndShapes) {
  Host host;
  const auto packed = [&](auto edit, const std::string& text) {
    expect_refusal(good_packed(host), edit, "moe_combine: " + text);
  };
  packed([&](auto& o) { o.out = host.out_f32({4}); }, "out is [4], expected [any,any]");
  packed([&](auto& o) { o.out = host.out_i32({2, 2}); }, "out is i32, expected f32, f16, bf16");
  packed([&](auto& o) { o.out = host.out_f32({2, 3}); }, "rows is [4,2], expected [4,3]");
  packed([&](auto& o) { o.from.weights = host.out_f32({3, 2}); }, "weights is [3,2], expected [2,any]");
  packed([&](auto& o) { o.from.weights = host.output(DType::f16, {2, 2}); }, "weights is f16, expected f32");
  packed([&](auto& o) { o.from.rows = host.out_f32({8}); }, "rows is [8], expected 2 to 3 dimensions");
  packed([&](auto& o) { o.from.rows = host.out_f32({3, 2}); }, "rows is [3,2], expected [4,2]");
  packed([&](auto& o) { o.from.rows = host.out_i32({4, 2}); }, "rows is i32, expected f32, f16, bf16");
  packed([&](auto& o) { o.from.pair_row = host.out_i32({4}); }, "pair_row is [4], expected [2,2]");
  packed([&](auto& o) { o.from.pair_row = host.out_f32({2, 2}); }, "pair_row is f32, expected i32");
  packed([&](auto& o) { o.from.experts = host.out_i32({2, 2}); }, "experts go with rows in slots: rows is packed");
  packed([&](auto& o) { o.from.shared = host.out_f32({1, 2}); }, "shared is [1,2], expected [2,2]");
  packed([&](auto& o) { o.from.shared = host.out_i32({2, 2}); }, "shared is i32, expected f32, f16, bf16");
  packed([&](auto& o) { o.from.live = host.out_i32({2}); }, "live is [2], expected [1]");
  packed([&](auto& o) { o.from.live = host.out_f32({1}); }, "live is f32, expected i32");
  packed(
      [](auto& o) {
        o.out = repeated(slice(o.out, 1, 0, 0), 1 << 30);  // no columns: no bytes, whatever the height
        o.from.weights = repeated(o.from.weights, 1 << 30);
      },
      "1073741824 tokens with 2 experts each: pair ids are 32-bit");

  const auto slots = [&](auto edit, const std::string& text) {
    expect_refusal(good_slots(host), edit, "moe_combine: " + text);
  };
  slots([&](auto& o) { o.from.rows = host.out_f32({2, 3, 2}); }, "rows is [2,3,2], expected [2,2,2]");
  slots([&](auto& o) { o.from.rows = host.out_u32({2, 2, 2}); }, "rows is u32, expected f32, f16, bf16");
  slots([&](auto& o) { o.from.experts = host.out_i32({2, 1}); }, "experts is [2,1], expected [2,2]");
  slots([&](auto& o) { o.from.experts = host.out_u32({2, 2}); }, "experts is u32, expected i32");
  slots([&](auto& o) { o.from.n_experts = 0; }, "n_experts is 0, expected 1 to 1048576");
  slots([&](auto& o) { o.from.n_experts = 1048577; }, "n_experts is 1048577, expected 1 to 1048576");
  slots([&](auto& o) { o.from.pair_row = host.out_i32({2, 2}); }, "pair_row goes with packed rows: rows is in slots");
}

}  // namespace
}  // namespace conclave::test
