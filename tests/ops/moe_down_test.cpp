#include "ops/moe_down.h"

#include <gtest/gtest.h>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Floats = std::vector<float>;

TEST(MoeDown, MultipliesEachPackedRowByItsExpert) {
  Host host;
  // Expert 0 has row 0, expert 1 none, expert 2 rows 1 and 2; row 3 belongs to nobody.
  const MoeDown op{.x = host.f32({4, 2}, {1, 2, /**/ 3, 4, /**/ 5, 6, /**/ 7, 8}),
                   .down = host.f32({3, 2, 2}, {1, 1, 1, -1, /**/ 9, 9, 9, 9, /**/ 10, 0, 0, 100}),
                   .offsets = host.i32({4}, {0, 1, 1, 3}),
                   .out = host.out_f32({4, 2})};
  run(op);
  const Floats out = floats_of(slice(op.out, 0, 0, 3));
  EXPECT_EQ(out, (Floats{3, -1,      // (1 + 2, 1 - 2)
                         30, 400,    // (10 * 3, 100 * 4)
                         50, 600}))  // (10 * 5, 100 * 6)
      << "packed rows in, packed rows out";
  EXPECT_TRUE(untouched(slice(op.out, 0, 3, 1)));
}

TEST(MoeDown, OffsetsPastTheRowsAreHeldToThem) {
  Host host;
  const MoeDown op{.x = host.f32({2, 1}, {1, 2}),
                   .down = host.f32({2, 1, 1}, {10, 100}),
                   .offsets = host.i32({3}, {-3, 1, 99}),
                   .out = host.out_f32({2, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Floats{10, 200}));
}

TEST(MoeDown, TakesNoRows) {
  Host host;
  run(MoeDown{.x = host.f32({0, 2}, {}),
              .down = host.f32({1, 1, 2}, {1, 1}),
              .offsets = host.i32({2}, {0, 0}),
              .out = host.out_f32({0, 1})});
}

TEST(MoeDown, IsMoeMatmulInPackedOrderBitForBit) {
  Rng rng(81);
  for (int round = 0; round < 60; ++round) {
    Host host(static_cast<std::uint64_t>(round), round % 2 == 0 ? Layout::dense : Layout::padded);
    const RoutingShape shape = random_routing(rng, 12, 9);
    const GroupInputs groups = group_inputs(host, shape, make_ids(rng, shape));
    const DType type = rng.pick(weight_formats());
    const std::int64_t d_model = rng.integer(1, 9), d_ff = width_for(type, rng.integer(1, 40));
    const std::int64_t n_pairs = shape.n_tokens * shape.top_k;
    const std::vector<std::int32_t> row_pair = ints_of(groups.row_pair);
    const DType x_type = random_float(rng);

    // The same rows packed, and by pair.
    const Tensor packed = host.values(x_type, {n_pairs, d_ff});
    const Floats values = floats_of(packed);
    Floats by_pair(values.size());
    for (std::int64_t r = 0; r < n_pairs; ++r) {
      const std::int64_t pair = row_pair[static_cast<std::size_t>(r)];
      if (pair >= 0) std::copy_n(values.begin() + r * d_ff, d_ff, by_pair.begin() + pair * d_ff);
    }
    const MoeDown op{.x = packed,
                     .down = host.weights(type, {shape.n_experts, d_model, d_ff}),
                     .offsets = groups.offsets,
                     .out = host.output(random_float(rng), {n_pairs, d_model})};
    const MoeMatmul matmul{.x = host.floats(x_type, {shape.n_tokens, shape.top_k, d_ff}, by_pair),
                           .w = op.down,
                           .rows = GroupedRows{.offsets = groups.offsets, .row_pair = groups.row_pair},
                           .out = host.output(op.out.dtype, {shape.n_tokens, shape.top_k, d_model})};
    run(op);
    run(matmul);
    const std::vector<std::uint32_t> got = dense_bits(op.out);
    const std::vector<std::uint32_t> want = dense_bits(matmul.out);
    for (std::int64_t i = 0; i < n_pairs * d_model; ++i) {
      const std::int64_t pair = row_pair[static_cast<std::size_t>(i / d_model)];
      ASSERT_EQ(got[static_cast<std::size_t>(i)],
                pair < 0 ? kPoisonF32 : want[static_cast<std::size_t>(pair * d_model + i % d_model)])
          << "round " << round;
    }
  }
}

MoeDown good_down(Host& host) {
  return {.x = host.values(DType::f32, {6, 4}),
          .down = host.values(DType::bf16, {5, 3, 4}),
          .offsets = host.integers({6}, 0, 0),
          .out = host.out_f32({6, 3})};
}

TEST(MoeDownRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_down(host), {});
  expect_bad_views_refused(good_down(host));
}

TEST(MoeDownRefuses, WrongTypesAndShapes) {
  Host host;
  const MoeDown op = good_down(host);
  const auto refused = [&](auto edit, const std::string& text) { expect_refusal(op, edit, "moe_down: " + text); };
  refused([&](auto& o) { o.x = host.out_f32({6, 1, 4}); }, "x is [6,1,4], expected [any,any]");
  refused([&](auto& o) { o.x = host.out_i32({6, 4}); }, "x is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.down = host.out_f32({5, 3, 5}); }, "down is [5,3,5], expected [any,any,4]");
  refused([&](auto& o) { o.down = host.out_i32({5, 3, 4}); }, "down is i32, expected f32, f16, bf16, q4_0");
  refused([&](auto& o) { o.offsets = host.out_i32({5}); }, "offsets is [5], expected [6]");
  refused([&](auto& o) { o.offsets = host.out_u32({6}); }, "offsets is u32, expected i32");
  refused([&](auto& o) { o.out = host.out_f32({5, 3}); }, "out is [5,3], expected [6,3]");
  refused([&](auto& o) { o.out = host.out_f32({6, 4}); }, "out is [6,4], expected [6,3]");
  refused([&](auto& o) { o.out = host.out_u32({6, 3}); }, "out is u32, expected f32, f16, bf16");
  refused([](auto& o) { o.x = repeated(o.x, std::int64_t{1} << 31); }, "2147483648");
}

}  // namespace
}  // namespace conclave::test
