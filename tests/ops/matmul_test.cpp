#include "ops/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;

// The canonical sum, told the other way round: the total over i mod 1 is two totals over i mod 2, and so on up to the 32
// chains.
float chains_of_residue(const Values& x, const Values& w, std::size_t residue, std::size_t modulus) {
  if (modulus < 32) {
    return chains_of_residue(x, w, residue, 2 * modulus) + chains_of_residue(x, w, residue + modulus, 2 * modulus);
  }
  float chain = 0;
  for (std::size_t k = residue; k < x.size(); k += 32) chain = std::fmaf(x[k], w[k], chain);
  return chain;
}

// One product of a single row with ones, in the canonical order.
float canonical_sum(const Values& w) {
  Host b(1, Layout::padded);
  const auto k = static_cast<std::int64_t>(w.size());
  const Matmul op{.x = b.f32({1, k}, Values(w.size(), 1)),
                  .w = b.f32({1, k}, w),
                  .order = Order::canonical,
                  .out = b.out_f32({1, 1})};
  run(op);
  return floats_of(op.out)[0];
}

Values sparse(std::initializer_list<std::pair<std::size_t, float>> entries) {
  Values w(64, 0.0F);
  for (const auto& [at, value] : entries) w[at] = value;
  return w;
}

TEST(Matmul, MultipliesRowsByRows) {
  Host b(1, Layout::padded);
  Matmul op{
      .x = b.f32({2, 3}, {1, 2, 3, 4, 5, 6}), .w = b.f32({2, 3}, {1, 0, -1, 10, 100, 1000}), .out = b.out_f32({2, 2})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{-2, 3210, -2, 6540}));
  op.bias = b.f16({2}, {0.5, -10});
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{-1.5, 3200, -1.5, 6530}));
}

TEST(Matmul, UsesQuantisedWeightsAsStored) {
  Host b(2, Layout::padded);
  for (const DType type : {DType::q4_0, DType::q8_0, DType::q6_k, DType::mxfp4}) {
    const std::int64_t k = dtype_info(type).per_block;
    const Matmul op{.x = b.f32({1, k}, Values(static_cast<std::size_t>(k), 1)),
                    .w = b.weights(type, {2, k}),
                    .out = b.out_f32({1, 2})};
    run(op);
    const Values w = floats_of(op.w);
    for (std::size_t n = 0; n < 2; ++n) {
      double sum = 0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(k); ++i) {
        sum += static_cast<double>(w[n * static_cast<std::size_t>(k) + i]);
      }
      EXPECT_EQ(floats_of(op.out)[n], static_cast<float>(sum)) << dtype_info(type).name;
    }
  }
}

TEST(Matmul, AccumulatesInF64WhereTheOrderIsFree) {
  Host b(1, Layout::padded);
  const Matmul op{
      .x = b.f32({1, 4}, {1, 1, 1, 1}), .w = b.f32({1, 4}, {0x1p60F, 1, 1, -0x1p60F}), .out = b.out_f32({1, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.out)[0], 0);  // ascending: 2^60 + 1 is 2^60 in f64 too
  const Matmul small{.x = op.x, .w = b.f32({1, 4}, {0x1p40F, 1, 1, -0x1p40F}), .out = op.out};
  run(small);
  EXPECT_EQ(floats_of(small.out)[0], 2);
}

// 2^24 swallows a 1 in f32: 2^24 + 1 rounds to 2^24, but 2^24 + 2 is exact. Where the two ones stand decides.
TEST(Matmul, CanonicalOrderRunsIn32Chains) {
  EXPECT_EQ(canonical_sum(sparse({{0, 0x1p24F}, {32, 1}, {33, 1}})), 0x1p24F) << "one 1 in the chain of 2^24";
  EXPECT_EQ(canonical_sum(sparse({{0, 0x1p24F}, {1, 1}, {33, 1}})), 0x1p24F + 2) << "both in chain 1";
  EXPECT_EQ(canonical_sum(sparse({{0, 1}, {32, 0x1p24F}, {1, 1}})), 0x1p24F) << "ascending within a chain";
}

TEST(Matmul, CanonicalOrderFoldsInHalves) {
  // Chains 1 and 3 meet before chain 0 joins; chains 0 and 2 meet first, and so do 0 and 16.
  EXPECT_EQ(canonical_sum(sparse({{0, 0x1p24F}, {1, 1}, {3, 1}})), 0x1p24F + 2);
  EXPECT_EQ(canonical_sum(sparse({{0, 0x1p24F}, {2, 1}, {1, 1}})), 0x1p24F);
  EXPECT_EQ(canonical_sum(sparse({{0, 0x1p24F}, {1, 1}, {17, 1}})), 0x1p24F + 2);
  EXPECT_EQ(canonical_sum(sparse({{0, 0x1p24F}, {16, 1}, {8, 1}})), 0x1p24F);
  EXPECT_EQ(canonical_sum(sparse({{0, 0x1p24F}, {8, 1}, {24, 1}})), 0x1p24F + 2);
}

TEST(Matmul, CanonicalOrderFusesEveryMultiplyAdd) {
  Host b(1, Layout::padded);
  // (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24, whose last bit only a fused step keeps.
  const float c = 1 + 0x1p-12F;
  Values x(33, 0.0F);
  Values w(33, 0.0F);
  x[0] = -(1 + 0x1p-11F);
  w[0] = 1;
  x[32] = w[32] = c;
  const Matmul op{.x = b.f32({1, 33}, x), .w = b.f32({1, 33}, w), .order = Order::canonical, .out = b.out_f32({1, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.out)[0], 0x1p-24F);
}

TEST(Matmul, CanonicalOrderAddsTheBiasLastInF32) {
  Host b(1, Layout::padded);
  const Matmul op{.x = b.f32({1, 2}, {1, 1}),
                  .w = b.f32({1, 2}, {0x1p24F, 1}),
                  .bias = b.f32({1}, {1}),
                  .order = Order::canonical,
                  .out = b.out_f32({1, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.out)[0], 0x1p24F);  // (2^24 + 1) + 1, rounded twice; in f64 it would be 2^24 + 2
}

TEST(Matmul, CanonicalOrderGivesTheseBitsInAnyBatch) {
  for (const std::int64_t k : {1, 31, 32, 33, 64, 100, 257}) {
    Host b(static_cast<std::uint64_t>(k), Layout::padded);
    const Tensor x = b.values(DType::f32, {9, k}, 100);
    const Tensor w = b.values(k % 2 == 0 ? DType::f32 : DType::bf16, {5, k}, 100);
    const auto product = [&](std::int64_t first, std::int64_t count) {
      const Matmul op{.x = slice(x, 0, first, count), .w = w, .order = Order::canonical, .out = b.out_f32({count, 5})};
      run(op);
      return floats_of(op.out);
    };
    Values expected;
    for (std::int64_t m = 0; m < 9; ++m) {
      for (std::int64_t n = 0; n < 5; ++n) {
        expected.push_back(chains_of_residue(floats_of(select_outer(x, m)), floats_of(select_outer(w, n)), 0, 1));
      }
    }
    EXPECT_EQ(product(0, 9), expected) << "k " << k;
    for (std::int64_t m = 0; m < 9; ++m) {
      EXPECT_EQ(product(m, 1), Values(expected.begin() + m * 5, expected.begin() + m * 5 + 5)) << "row " << m;
    }
    EXPECT_EQ(product(2, 4), Values(expected.begin() + 10, expected.begin() + 30));
  }
}

TEST(Matmul, LeavesRowsPastLiveAlone) {
  for (const Order order : {Order::any, Order::canonical}) {
    for (const auto& [live, written] : {std::pair{2, 2}, {0, 0}, {-3, 0}, {7, 3}}) {
      Host b(1, Layout::padded);
      const Matmul op{.x = b.values(DType::f32, {3, 4}),
                      .w = b.values(DType::f32, {2, 4}),
                      .live = b.live(live),
                      .order = order,
                      .out = b.out_f32({3, 2})};
      run(op);
      for (std::int64_t r = 0; r < 3; ++r)
        EXPECT_EQ(untouched(slice(op.out, 0, r, 1)), r >= written) << "live " << live;
    }
  }
}

TEST(Matmul, OfNoColumnsGivesTheBias) {
  Host b(1, Layout::padded);
  const Matmul op{.x = b.f32({2, 0}, {}), .w = b.f32({1, 0}, {}), .bias = b.f32({1}, {7}), .out = b.out_f32({2, 1})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{7, 7}));
}

TEST(Matmul, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const Matmul valid{.x = b.values(DType::f32, {5, 64}),
                     .w = b.values(DType::f32, {3, 64}),
                     .bias = b.values(DType::f32, {3}),
                     .live = b.live(5),
                     .out = b.out_f32({5, 3})};
  expect_all_needed_but(valid, {"bias", "live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](Matmul& op) { op.x = b.values(DType::f32, {5, 1, 64}); }, "matmul: x is [5,1,64], expected [any,any]");
  expect([&](Matmul& op) { op.x = b.weights(DType::q8_0, {5, 64}); }, "matmul: x is q8_0, expected f32, f16, bf16");
  expect([&](Matmul& op) { op.w = b.values(DType::f32, {64}); }, "matmul: w is [64], expected [any,any]");
  expect(
      [&](Matmul& op) {
        op.w = b.values(DType::f32, {3, 32});
      },
      "matmul: x is [5,64], w is [3,32]: inner dimensions differ");
  expect([&](Matmul& op) { op.bias = b.values(DType::f32, {5}); }, "matmul: bias is [5], expected [3]");
  expect([&](Matmul& op) { op.live = b.integers({0}, 0, 1); }, "matmul: live is [0], expected [1]");
  expect([&](Matmul& op) { op.out = b.out_f32({3, 5}); }, "matmul: out is [3,5], expected [5,3]");
  expect([](Matmul& op) { op.out = slice(slice(op.x, 1, 0, 3), 0, 0, 5); }, "matmul: out is written and overlaps x");
}

TEST(Matmul, RefusesTypesThatHaveNoCanonicalOrder) {
  Host b(1, Layout::padded);
  const Matmul valid{.x = b.values(DType::f32, {5, 64}),
                     .w = b.values(DType::bf16, {3, 64}),
                     .bias = b.values(DType::f32, {3}),
                     .order = Order::canonical,
                     .out = b.out_f32({5, 3})};
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](Matmul& op) { op.x = b.values(DType::f16, {5, 64}); }, "matmul: x is f16, expected f32");
  expect([&](Matmul& op) { op.w = b.weights(DType::q8_0, {3, 64}); }, "matmul: w is q8_0, expected f32, f16, bf16");
  expect([&](Matmul& op) { op.out = b.output(DType::bf16, {5, 3}); }, "matmul: out is bf16, expected f32");
  expect([&](Matmul& op) { op.bias = b.values(DType::f16, {3}); }, "matmul: bias is f16, expected f32");
}

}  // namespace
}  // namespace conclave::test
