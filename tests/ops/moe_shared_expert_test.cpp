#include "ops/moe_shared_expert.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"
#include "support/cases/routings.h"

namespace conclave::test {
namespace {

// d_model 2, d_shared 1, on x = (1, 2): gate takes x1 = 2, up takes 3 x0 = 3, so hidden is silu(2) * 3 = 5.2847825;
// down gives (1, -2) times that.
MoeSharedExpert shared_expert_example(Host& host) {
  return {.x = host.f32({1, 2}, {1, 2}),
          .gate = host.f32({1, 2}, {0, 1}),
          .up = host.f32({1, 2}, {3, 0}),
          .down = host.f32({2, 1}, {1, -2}),
          .hidden = host.out_f32({1, 1}),
          .out = host.out_f32({1, 2})};
}

TEST(MoeSharedExpert, IsAGatedFeedForward) {
  Host host;
  const MoeSharedExpert op = shared_expert_example(host);
  run(op);
  EXPECT_FLOAT_EQ(floats_of(op.out)[0], 5.2847825F);
  EXPECT_FLOAT_EQ(floats_of(op.out)[1], -10.569565F);
}

TEST(MoeSharedExpert, MayHaveASigmoidGateOnTheInput) {
  Host host;
  MoeSharedExpert op = shared_expert_example(host);
  op.gate_inp = host.f32({2}, {-std::log(3.0F), std::log(3.0F)});  // (-1 + 2) ln 3: sigmoid is 3/4
  run(op);
  EXPECT_FLOAT_EQ(floats_of(op.out)[0], 0.75F * 5.2847825F);
  EXPECT_FLOAT_EQ(floats_of(op.out)[1], 0.75F * -10.569565F);
}

TEST(MoeSharedExpert, MayUseTheTanhGelu) {
  Host host;
  MoeSharedExpert op = shared_expert_example(host);
  op.act = Activation::gelu;
  run(op);
  EXPECT_FLOAT_EQ(floats_of(op.out)[0], 1.9545977F * 3) << "gelu(2) * 3";
}

TEST(MoeSharedExpert, RoundsHiddenToItsType) {
  Host host;
  MoeSharedExpert op = shared_expert_example(host);
  op.hidden = host.output(DType::bf16, {1, 1});
  run(op);
  // Between 4 and 8 bf16 has steps of 1/32: 5.2847825 becomes 169/32.
  EXPECT_EQ(floats_of(op.out), (std::vector<float>{5.28125F, -10.5625F}));
}

TEST(MoeSharedExpert, RoundsTheProductToF32BeforeTheSigmoidGate) {
  Host host;
  // hidden is silu(64) / 64 = 1 twice, y is 1 + 2^-24: in f32 a tie, to 1. Times 3/4 unrounded it would come out above 3/4.
  const MoeSharedExpert op{.x = host.f32({1, 1}, {1}),
                           .gate = host.f32({2, 1}, {64, 64}),
                           .up = host.f32({2, 1}, {1.0F / 64, 1.0F / 64}),
                           .down = host.f32({1, 2}, {1, 0x1p-24F}),
                           .gate_inp = host.f32({1}, {std::log(3.0F)}),
                           .hidden = host.out_f32({1, 2}),
                           .out = host.out_f32({1, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.hidden), (std::vector<float>{1, 1}));
  EXPECT_EQ(floats_of(op.out), (std::vector<float>{0.75F}));
}

TEST(MoeSharedExpert, LeavesTokensPastLiveAlone) {
  Host host(4);
  MoeSharedExpert op{.x = host.values(DType::f32, {3, 4}),
                     .gate = host.values(DType::f32, {2, 4}),
                     .up = host.values(DType::f32, {2, 4}),
                     .down = host.values(DType::f32, {4, 2}),
                     .live = host.live(2),
                     .hidden = host.out_f32({3, 2}),
                     .out = host.out_f32({3, 4})};
  run(op);
  EXPECT_FALSE(untouched(slice(op.out, 0, 1, 1)));
  EXPECT_TRUE(untouched(slice(op.out, 0, 2, 1)));
  EXPECT_TRUE(untouched(slice(op.hidden, 0, 2, 1)));
}

TEST(MoeSharedExpert, IsThreeProductsAndSiluMulBitForBitAndEachTokenByItself) {
  Rng rng(91);
  for (int round = 0; round < 40; ++round) {
    Host host(static_cast<std::uint64_t>(round), round % 2 == 0 ? Layout::dense : Layout::padded);
    const DType type = rng.pick(weight_formats());
    const std::int64_t n = rng.integer(1, 5), d_model = width_for(type, rng.integer(1, 20));
    const std::int64_t d_shared = width_for(type, rng.integer(1, 20));
    const MoeSharedExpert op{.x = host.values(random_float(rng), {n, d_model}),
                             .gate = host.weights(type, {d_shared, d_model}),
                             .up = host.weights(type, {d_shared, d_model}),
                             .down = host.weights(type, {d_model, d_shared}),
                             .hidden = host.output(random_float(rng), {n, d_shared}),
                             .out = host.output(random_float(rng), {n, d_model})};
    run(op);
    const auto product = [&](const Tensor& x, const Tensor& w, DType out) {
      const Matmul matmul{.x = x, .w = w, .out = host.output(out, {n, w.dim(0)})};
      run(matmul);
      return matmul.out;
    };
    const SiluMul mul{.gate = product(op.x, op.gate, DType::f32),
                      .up = product(op.x, op.up, DType::f32),
                      .out = host.output(op.hidden.dtype, {n, d_shared})};
    run(mul);
    ASSERT_EQ(dense_bits(op.out), dense_bits(product(mul.out, op.down, op.out.dtype))) << "round " << round;

    MoeSharedExpert alone = op;
    alone.x = slice(op.x, 0, n - 1, 1);
    alone.hidden = host.output(op.hidden.dtype, {1, d_shared});
    alone.out = host.output(op.out.dtype, {1, d_model});
    run(alone);
    ASSERT_EQ(dense_bits(alone.out), dense_bits(slice(op.out, 0, n - 1, 1)));
  }
}

TEST(MoeSharedExpert, TakesNoTokens) {
  Host host;
  MoeSharedExpert op = shared_expert_example(host);
  op.x = host.f32({0, 2}, {});
  op.hidden = host.out_f32({0, 1});
  op.out = host.out_f32({0, 2});
  run(op);
}

MoeSharedExpert good_shared(Host& host) {
  return {.x = host.values(DType::f32, {3, 4}),
          .gate = host.values(DType::f32, {2, 4}),
          .up = host.values(DType::f16, {2, 4}),
          .down = host.values(DType::bf16, {4, 2}),
          .gate_inp = host.values(DType::f32, {4}),
          .live = host.live(3),
          .hidden = host.out_f32({3, 2}),
          .out = host.out_f32({3, 4})};
}

TEST(MoeSharedExpertRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_shared(host), {"shared_gate_inp", "live"});
  expect_bad_views_refused(good_shared(host));
}

TEST(MoeSharedExpertRefuses, WrongTypesAndShapes) {
  Host host;
  const MoeSharedExpert op = good_shared(host);
  const auto refused = [&](auto edit, const std::string& text) {
    expect_refusal(op, edit, "moe_shared_expert: " + text);
  };
  refused([&](auto& o) { o.x = host.out_f32({12}); }, "x is [12], expected [any,any]");
  refused([&](auto& o) { o.x = host.out_i32({3, 4}); }, "x is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.gate = host.out_f32({2, 3}); }, "shared_gate is [2,3], expected [any,4]");
  refused([&](auto& o) { o.gate = host.out_i32({2, 4}); }, "shared_gate is i32, expected f32, f16, bf16, q4_0");
  refused([&](auto& o) { o.up = host.out_f32({3, 4}); }, "shared_up is [3,4], expected [2,4]");
  refused([&](auto& o) { o.up = host.out_i32({2, 4}); }, "shared_up is i32, expected f32, f16, bf16, q4_0");
  refused([&](auto& o) { o.down = host.out_f32({2, 4}); }, "shared_down is [2,4], expected [4,2]");
  refused([&](auto& o) { o.down = host.out_i32({4, 2}); }, "shared_down is i32, expected f32, f16, bf16, q4_0");
  refused([&](auto& o) { o.gate_inp = host.out_f32({2}); }, "shared_gate_inp is [2], expected [4]");
  refused([&](auto& o) { o.gate_inp = host.out_i32({4}); }, "shared_gate_inp is i32, expected f32, f16, bf16");
  refused([&](auto& o) { o.live = host.out_f32({1}); }, "live is f32, expected i32");
  refused([&](auto& o) { o.hidden = host.out_f32({3, 3}); }, "shared_hidden is [3,3], expected [3,2]");
  refused([&](auto& o) { o.hidden = host.out_u32({3, 2}); }, "shared_hidden is u32, expected f32, f16, bf16");
  refused([&](auto& o) { o.out = host.out_f32({2, 4}); }, "out is [2,4], expected [3,4]");
  refused([&](auto& o) { o.out = host.out_u32({3, 4}); }, "out is u32, expected f32, f16, bf16");
}

}  // namespace
}  // namespace conclave::test
