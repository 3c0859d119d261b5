#include "ops/silu_mul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"

namespace conclave::test {
namespace {

using Floats = std::vector<float>;

// silu(0) = 0, silu(1) = 0.73105858, silu(-1) = -0.26894142, silu(2) = 1.7615942
const Floats kGate = {0, 1, -1, 2};
const Floats kUp = {5, 10, 10, -1};
const Floats kProduct = {0, 7.3105858F, -2.6894142F, -1.7615942F};

void expect_product(const Tensor& out) {
  const Floats got = floats_of(out);
  ASSERT_EQ(got.size(), kProduct.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_FLOAT_EQ(got[i], kProduct[i]);
}

TEST(SiluMul, MultipliesSiluOfGateByUp) {
  Host host;
  const SiluMul op{.gate = host.f32({2, 2}, kGate), .up = host.f32({2, 2}, kUp), .out = host.out_f32({2, 2})};
  run(op);
  expect_product(op.out);
}

TEST(SiluMul, TakesGateColumnsBesideUpColumns) {
  Host host;
  const SiluMul op{.layout = GateUpLayout::concatenated,
                   .gate_up = host.f32({2, 4}, {kGate[0], kGate[1], kUp[0], kUp[1],  //
                                                kGate[2], kGate[3], kUp[2], kUp[3]}),
                   .out = host.out_f32({2, 2})};
  run(op);
  expect_product(op.out);
}

TEST(SiluMul, TakesAGatePlaneBeforeAnUpPlane) {
  Host host;
  Floats both = kGate;
  both.insert(both.end(), kUp.begin(), kUp.end());
  const SiluMul op{.layout = GateUpLayout::stacked, .gate_up = host.f32({2, 2, 2}, both), .out = host.out_f32({2, 2})};
  run(op);
  expect_product(op.out);
}

TEST(SiluMul, MayWriteOverGateOrOverUp) {
  Host host;
  SiluMul op{.gate = host.f32({4}, kGate), .up = host.f32({4}, kUp)};
  op.out = op.gate;
  run(op);
  expect_product(op.out);
  op = {.gate = host.f32({1, 2, 2}, kGate), .up = host.f32({1, 2, 2}, kUp)};
  op.out = op.up;
  run(op);
  expect_product(op.out);
}

TEST(SiluMul, HasTheLimitsOfSilu) {
  Host host;
  const float inf = INFINITY, nan = NAN;
  const SiluMul op{.gate = host.f32({6}, {-inf, -1e30F, inf, 1e30F, nan, -0.0F}),
                   .up = host.f32({6}, {7, 7, 7, 2, 1, 1}),
                   .out = host.out_f32({6})};
  run(op);
  const Floats out = floats_of(op.out);
  EXPECT_EQ(out[0], 0) << "the limit, not -inf * 0";
  EXPECT_EQ(out[1], 0);
  EXPECT_EQ(out[2], inf);
  EXPECT_FLOAT_EQ(out[3], 2e30F);
  EXPECT_TRUE(std::isnan(out[4]));
  EXPECT_EQ(out[5], 0);
}

TEST(SiluMul, LeavesRowsPastLiveAlone) {
  Host host;
  SiluMul op{
      .gate = host.f32({2, 2}, kGate), .up = host.f32({2, 2}, kUp), .live = host.live(1), .out = host.out_f32({2, 2})};
  run(op);
  EXPECT_FLOAT_EQ(floats_of(op.out)[1], kProduct[1]);
  EXPECT_TRUE(untouched(slice(op.out, 0, 1, 1)));
  op.live = host.live(-1);
  op.out = host.out_f32({2, 2});
  run(op);
  EXPECT_TRUE(untouched(op.out));
  op.live = host.live(3);
  run(op);
  expect_product(op.out);
}

// The same values apart, concatenated and stacked, with leading dimensions, dense and padded.
TEST(SiluMul, TheThreeLayoutsGiveTheSameBits) {
  for (const Layout layout : {Layout::dense, Layout::padded}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      Host host(5, layout);
      const std::int64_t batch = 2, n = 3, d = 5;
      const auto at = [](const Floats& v, std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
      Floats gate, up;
      for (std::int64_t i = 0; i < batch * n * d; ++i) {
        gate.push_back(static_cast<float>(host.rng.normal() * 4));
        up.push_back(static_cast<float>(host.rng.normal()));
      }
      Floats beside, planes;
      for (std::int64_t row = 0; row < batch * n; ++row) {
        for (const Floats* v : {&gate, &up}) {
          for (std::int64_t i = 0; i < d; ++i) beside.push_back(at(*v, row * d + i));
        }
      }
      for (std::int64_t b = 0; b < batch; ++b) {
        for (const Floats* v : {&gate, &up}) {
          for (std::int64_t i = 0; i < n * d; ++i) planes.push_back(at(*v, b * n * d + i));
        }
      }
      const auto out = [&] { return host.out_f32({batch, n, d}); };
      const SiluMul apart{
          .gate = host.floats(type, {batch, n, d}, gate), .up = host.floats(type, {batch, n, d}, up), .out = out()};
      const SiluMul concatenated{
          .layout = GateUpLayout::concatenated, .gate_up = host.floats(type, {batch, n, 2 * d}, beside), .out = out()};
      const SiluMul stacked{
          .layout = GateUpLayout::stacked, .gate_up = host.floats(type, {batch, 2, n, d}, planes), .out = out()};
      run(apart);
      run(concatenated);
      run(stacked);
      EXPECT_EQ(dense_bits(apart.out), dense_bits(concatenated.out));
      EXPECT_EQ(dense_bits(apart.out), dense_bits(stacked.out));
      const double g = static_cast<double>(floats_of(apart.gate)[7]);
      EXPECT_FLOAT_EQ(floats_of(apart.out)[7], static_cast<float>(g / (1 + std::exp(-g))) * floats_of(apart.up)[7]);
    }
  }
}

TEST(SiluMul, TakesNoRows) {
  Host host;
  run(SiluMul{.gate = host.f32({0, 4}, {}), .up = host.f32({0, 4}, {}), .out = host.out_f32({0, 4})});
  run(SiluMul{.layout = GateUpLayout::concatenated, .gate_up = host.f32({0, 8}, {}), .out = host.out_f32({0, 4})});
}

// ---- refusals

SiluMul good_apart(Host& host) {
  return {
      .gate = host.f32({2, 2}, kGate), .up = host.f32({2, 2}, kUp), .live = host.live(2), .out = host.out_f32({2, 2})};
}
SiluMul good_concatenated(Host& host) {
  return {
      .layout = GateUpLayout::concatenated, .gate_up = host.values(DType::f16, {2, 4}), .out = host.out_f32({2, 2})};
}
SiluMul good_stacked(Host& host) {
  return {.layout = GateUpLayout::stacked, .gate_up = host.values(DType::f32, {2, 3, 2}), .out = host.out_f32({3, 2})};
}

TEST(SiluMulRefuses, MissingTensorsAndBadViews) {
  Host host;
  expect_all_needed_but(good_apart(host), {"live"});
  expect_all_needed_but(good_concatenated(host), {});
  expect_all_needed_but(good_stacked(host), {});
  expect_bad_views_refused(good_apart(host));
  expect_bad_views_refused(good_concatenated(host));
  expect_bad_views_refused(good_stacked(host));
}

TEST(SiluMulRefuses, AnOutputThatIsPartOfAnInputButNotAllOfIt) {
  Host host;
  SiluMul op = good_concatenated(host);
  op.gate_up = host.values(DType::f32, {2, 4});
  op.out = slice(op.gate_up, 1, 0, 2);
  expect_refusal(op, "silu_mul: out is written and overlaps gate_up");
  op = good_apart(host);
  op.out = op.up;
  op.out.dtype = DType::bf16;  // other elements in the same bytes
  op.out.strides[1] = 2;
  expect_refusal(op, "silu_mul: out is written and overlaps up");
}

// Waits for checked arithmetic in the tensor's view: such sizes wrap around today and are accepted.
TEST(SiluMulRefuses, SizesThatOverflow) {
  Host host;
  for (const int power : {61, 62}) {
    SiluMul op{.gate = host.f32({4}, kGate), .up = host.f32({4}, kUp), .out = host.out_f32({4})};
    for (Tensor* t : {&op.gate, &op.up, &op.out}) t->dims[0] = std::int64_t{1} << power;  // as bytes: 2^63, 2^64
    expect_refusal(op, "its size overflows");
  }
  SiluMul op{.gate = host.f32({1, 1, 1}, {1}), .up = host.f32({1, 1, 1}, {1}), .out = host.out_f32({1, 1, 1})};
  for (Tensor* t : {&op.gate, &op.up, &op.out}) {
    *t = repeated(*t, std::int64_t{1} << 32);
    t->dims[1] = std::int64_t{1} << 32;  // 2^64 elements, all the same one
    t->strides[1] = 0;
  }
  expect_refusal(op, "its size overflows");
}

TEST(SiluMulRefuses, WrongTypesAndShapes) {
  Host host;
  const auto apart = [&](auto edit, const std::string& text) {
    expect_refusal(good_apart(host), edit, "silu_mul: " + text);
  };
  apart([&](auto& o) { o.out = host.out_i32({2, 2}); }, "out is i32, expected f32, f16, bf16");
  apart([&](auto& o) { o.out = host.out_f32({2, 3}); }, "gate is [2,2], out is [2,3]");
  apart([&](auto& o) { o.gate = host.out_f32({4}); }, "gate is [4], out is [2,2]");
  apart([&](auto& o) { o.gate = host.out_u32({2, 2}); }, "gate is u32, expected f32, f16, bf16");
  apart([&](auto& o) { o.up = host.out_f32({1, 2}); }, "up is [1,2], out is [2,2]");
  apart([&](auto& o) { o.up = host.weights(DType::q8_0, {2, 32}); }, "up is q8_0, expected f32, f16, bf16");
  apart([&](auto& o) { o.gate_up = host.out_f32({2, 4}); }, "gate_up is given, but the layout is apart");
  apart([&](auto& o) { o.live = host.out_i32({2}); }, "live is [2], expected [1]");
  apart([&](auto& o) { o.live = host.out_f32({1}); }, "live is f32, expected i32");
  apart([&](auto& o) { o.gate = o.out = host.out_f32({4}); }, "live counts rows of a [n, d_ff] output");
  apart([&](auto& o) { o.out = host.out_f32({1, 2, 2}); }, "live counts rows of a [n, d_ff] output");

  const auto concatenated = [&](auto edit, const std::string& text) {
    expect_refusal(good_concatenated(host), edit, "silu_mul: " + text);
  };
  concatenated([&](auto& o) { o.gate_up = host.out_f32({2, 5}); }, "gate_up is [2,5]: its columns are two halves");
  concatenated([&](auto& o) { o.gate_up = host.out_f32({2, 6}); }, "one half of gate_up is [2,3], out is [2,2]");
  concatenated([&](auto& o) { o.gate_up = host.out_f32({4}); }, "one half of gate_up is [2], out is [2,2]");
  concatenated([&](auto& o) { o.gate_up = host.out_i32({2, 4}); }, "gate_up is i32, expected f32, f16, bf16");
  concatenated([&](auto& o) { o.gate = host.out_f32({2, 2}); }, "gate or up is given, but the layout is concatenated");

  const auto stacked = [&](auto edit, const std::string& text) {
    expect_refusal(good_stacked(host), edit, "silu_mul: " + text);
  };
  stacked([&](auto& o) { o.gate_up = host.out_f32({3, 3, 2}); }, "gate_up is [3,3,2], expected [..., 2, n, d_ff]");
  stacked([&](auto& o) { o.gate_up = host.out_f32({6, 2}); }, "gate_up is [6,2], expected 3 to 4 dimensions");
  stacked([&](auto& o) { o.gate_up = host.out_f32({2, 2, 2}); }, "one half of gate_up is [2,2], out is [3,2]");
  stacked([&](auto& o) { o.up = host.out_f32({3, 2}); }, "gate or up is given, but the layout is stacked");
  stacked([&](auto& o) { o.live = host.live(1); }, "live counts rows of a [n, d_ff] output");
}

}  // namespace
}  // namespace conclave::test
