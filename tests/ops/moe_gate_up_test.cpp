#include "ops/moe_gate_up.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

using Floats = std::vector<float>;

TEST(MoeGateUp, GatesEachPackedRow) {
  Host host;
  // Two tokens of width 2, two experts of width 1. Expert 0: gate x0, up x1. Expert 1: gate -x1, up 2 x0 + x1.
  // Packed rows: token 1 by expert 0, token 0 by expert 1, and nothing in the last two.
  const MoeGateUp op{.x = host.f32({2, 2}, {3, 2, /**/ 4, 5}),
                     .gate = host.f32({2, 1, 2}, {1, 0, /**/ 0, -1}),
                     .up = host.f32({2, 1, 2}, {0, 1, /**/ 2, 1}),
                     .offsets = host.i32({3}, {0, 1, 2}),
                     .row_pair = host.i32({4}, {2, 1, -1, -1}),
                     .top_k = 2,
                     .out = host.out_f32({4, 1})};
  run(op);
  const Floats out = floats_of(op.out);
  EXPECT_FLOAT_EQ(out[0], 19.640276F) << "silu(4) * 5 = 4 / (1 + exp(-4)) * 5";
  EXPECT_FLOAT_EQ(out[1], -1.9072466F) << "silu(-2) * 8 = -2 / (1 + exp(2)) * 8";
  EXPECT_TRUE(untouched(slice(op.out, 0, 2, 2))) << "rows past the last expert's";
}

TEST(MoeGateUp, MayUseTheTanhGelu) {
  Host host;
  const MoeGateUp op{.x = host.f32({1, 1}, {1}),
                     .gate = host.f32({1, 2, 1}, {1, -3}),
                     .up = host.f32({1, 2, 1}, {2, 1}),
                     .offsets = host.i32({2}, {0, 1}),
                     .row_pair = host.i32({1}, {0}),
                     .act = Activation::gelu,
                     .out = host.out_f32({1, 2})};
  run(op);
  // gelu(1) = 0.5 (1 + tanh(0.79788456 * 1.044715)) = 0.84119199; gelu(-3) = -1.5 (1 - tanh(3.3568...)) = -0.0036373920
  EXPECT_FLOAT_EQ(floats_of(op.out)[0], 2 * 0.84119199F);
  EXPECT_NEAR(floats_of(op.out)[1], -0.0036373920F, 1e-8F);
}

TEST(MoeGateUp, AGateOfMinusInfinityGivesZero) {
  Host host;
  const float inf = INFINITY;
  for (const Activation act : {Activation::silu, Activation::gelu}) {
    const MoeGateUp op{.x = host.f32({1, 1}, {1}),
                       .gate = host.f32({1, 2, 1}, {-inf, inf}),
                       .up = host.f32({1, 2, 1}, {3, 3}),
                       .offsets = host.i32({2}, {0, 1}),
                       .row_pair = host.i32({1}, {0}),
                       .act = act,
                       .out = host.out_f32({1, 2})};
    run(op);
    EXPECT_EQ(floats_of(op.out), (Floats{0, inf})) << name(act);
  }
}

TEST(MoeGateUp, PassesOverRowsThatAreNoPair) {
  Host host;
  const MoeGateUp op{.x = host.f32({2, 1}, {1, 2}),
                     .gate = host.f32({1, 1, 1}, {1}),
                     .up = host.f32({1, 1, 1}, {1}),
                     .offsets = host.i32({2}, {-9, 99}),
                     .row_pair = host.i32({2}, {2, 1}),
                     .out = host.out_f32({2, 1})};
  run(op);
  EXPECT_TRUE(untouched(slice(op.out, 0, 0, 1)));
  EXPECT_FLOAT_EQ(floats_of(op.out)[1], 3.5231884F) << "silu(2) * 2";
}

TEST(MoeGateUp, IsTwoExpertProductsAndSiluMulInPackedOrderBitForBit) {
  Rng rng(71);
  for (int round = 0; round < 60; ++round) {
    Host host(static_cast<std::uint64_t>(round), round % 2 == 0 ? Layout::dense : Layout::padded);
    const RoutingShape shape = random_routing(rng, 12, 9);
    const GroupInputs groups = group_inputs(host, shape, make_ids(rng, shape));
    const DType type = rng.pick(weight_formats());
    const std::int64_t d_ff = rng.integer(1, 9), d_model = width_for(type, rng.integer(1, 40));
    const std::int64_t n_pairs = shape.n_tokens * shape.top_k;
    const MoeGateUp op{.x = host.values(random_float(rng), {shape.n_tokens, d_model}),
                       .gate = host.weights(type, {shape.n_experts, d_ff, d_model}),
                       .up = host.weights(type, {shape.n_experts, d_ff, d_model}),
                       .offsets = groups.offsets,
                       .row_pair = groups.row_pair,
                       .top_k = shape.top_k,
                       .out = host.output(random_float(rng), {n_pairs, d_ff})};
    run(op);

    Tensor x = op.x;  // [n_tokens, d_model] as [n_tokens, 1, d_model]
    x.rank = 3;
    x.dims = {shape.n_tokens, 1, d_model};
    x.strides = {op.x.stride(0), op.x.stride(0), op.x.stride(1)};
    const auto product = [&](const Tensor& w) {
      const MoeMatmul matmul{.x = x,
                             .w = w,
                             .rows = GroupedRows{.offsets = groups.offsets, .row_pair = groups.row_pair},
                             .out = host.out_f32({shape.n_tokens, shape.top_k, d_ff})};
      run(matmul);
      return matmul.out;
    };
    const SiluMul mul{.gate = product(op.gate),
                      .up = product(op.up),
                      .out = host.output(op.out.dtype, {shape.n_tokens, shape.top_k, d_ff})};
    run(mul);

    const std::vector<std::uint32_t> by_pair = dense_bits(mul.out);
    const std::vector<std::uint32_t> packed = dense_bits(op.out);
    const std::vector<std::int32_t> row_pair = ints_of(groups.row_pair);
    for (std::int64_t r = 0; r < n_pairs; ++r) {
      const std::int64_t pair = row_pair[static_cast<std::size_t>(r)];
      for (std::int64_t n = 0; n < d_ff; ++n) {
        const std::uint32_t want = pair < 0 ? kPoisonF32 : by_pair[static_cast<std::size_t>(pair * d_ff + n)];
        ASSERT_EQ(packed[static_cast<std::size_t>(r * d_ff + n)], want) << "round " << round << " row " << r;
      }
    }
  }
}

MoeGateUp good_gate_up(Host& host) {
  return {.x = host.values(DType::f32, {3, 4}),
          .gate = host.values(DType::f32, {5, 6, 4}),
          .up = host.values(DType::f16, {5, 6, 4}),
          .offsets = host.integers({6}, 0, 0),
          .row_pair = host.integers({6}, 0, 0),
          .top_k = 2,
          .out = host.out_f32({6, 6})};
}

TEST(MoeGateUpRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_gate_up(host), {});
  expect_bad_views_refused(good_gate_up(host));
}

TEST(MoeGateUpRefuses, WrongTypesShapesAndCounts) {
  Host host;
  const MoeGateUp op = good_gate_up(host);
  const auto refused = [&](auto edit, const std::string& text) { expect_refusal(op, edit, "moe_gate_up: " + text); };
  refused([&](auto& o) { o.x = host.out_f32({3, 1, 4}); }, "x is [3,1,4], expected [any,any]");
  refused([&](auto& o) { o.x = host.weights(DType::q8_0, {3, 32}); }, "x is q8_0, expected f32, f16, bf16");
  refused([&](auto& o) { o.gate = host.out_f32({5, 6, 3}); }, "gate is [5,6,3], expected [any,any,4]");
  refused([&](auto& o) { o.gate = host.out_i32({5, 6, 4}); }, "gate is i32, expected f32, f16, bf16, q4_0");
  refused([&](auto& o) { o.up = host.out_f32({5, 7, 4}); }, "up is [5,7,4], expected [5,6,4]");
  refused([&](auto& o) { o.up = host.out_u32({5, 6, 4}); }, "up is u32, expected f32, f16, bf16, q4_0");
  refused([](auto& o) { o.top_k = 0; }, "top_k is 0, expected 1 to 1048576");
  refused([](auto& o) { o.top_k = 1048577; }, "top_k is 1048577, expected 1 to 1048576");
  refused([](auto& o) { o.top_k = 3; }, "row_pair is [6], expected [9]");
  refused([&](auto& o) { o.offsets = host.out_i32({5}); }, "offsets is [5], expected [6]");
  refused([&](auto& o) { o.offsets = host.out_f32({6}); }, "offsets is f32, expected i32");
  refused([&](auto& o) { o.row_pair = host.out_f32({6}); }, "row_pair is f32, expected i32");
  refused([&](auto& o) { o.out = host.out_f32({6, 5}); }, "out is [6,5], expected [6,6]");
  refused([&](auto& o) { o.out = host.out_i32({6, 6}); }, "out is i32, expected f32, f16, bf16");
  refused([](auto& o) { o.x = repeated(o.x, 1 << 30); }, "1073741824 tokens with 2 experts each: pair ids are 32-bit");
}

}  // namespace
}  // namespace conclave::test
