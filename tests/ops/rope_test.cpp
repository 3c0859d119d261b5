#include "ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;

// One token of one head at `position`.
Values rotated(Host& b, const Values& x, std::int32_t position, Rope op) {
  const auto d = static_cast<std::int64_t>(x.size());
  op.x = b.f32({1, 1, d}, x);
  op.positions = b.i32({1}, {position});
  op.out = b.out_f32({1, 1, d});
  if (op.n_rot == 0) op.n_rot = d;
  run(op);
  return floats_of(op.out);
}

void expect_values_near(const Values& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << "element " << i;
}

// With base 100 and four elements, pair 0 turns by 1 a position and pair 1 by 100^(-2/4) = 0.1: at position 2 by 2 and 0.2.
TEST(Rope, NeoxPairsTheHalves) {
  Host b(1, Layout::padded);
  const Values out = rotated(b, {1, 0, 0, 2}, 2, {.style = RopeStyle::neox, .base = 100});
  // (x0, x2) = (1, 0) and (x1, x3) = (0, 2)
  expect_values_near(out, {std::cos(2.0), -2 * std::sin(0.2), std::sin(2.0), 2 * std::cos(0.2)});
}

TEST(Rope, InterleavedPairsNeighbours) {
  Host b(1, Layout::padded);
  const Values out = rotated(b, {1, 0, 0, 2}, 2, {.style = RopeStyle::interleaved, .base = 100});
  // (x0, x1) = (1, 0) and (x2, x3) = (0, 2)
  expect_values_near(out, {std::cos(2.0), std::sin(2.0), -2 * std::sin(0.2), 2 * std::cos(0.2)});
}

TEST(Rope, ChangesNothingAtPositionZero) {
  for (const RopeStyle style : {RopeStyle::neox, RopeStyle::interleaved}) {
    Host b(2, Layout::padded);
    const Values x = floats_of(b.values(DType::f32, {64}));
    EXPECT_EQ(rotated(b, x, 0, {.style = style}), x);
  }
}

TEST(Rope, TurnsBackAtNegativePositions) {
  Host b(1, Layout::padded);
  expect_values_near(rotated(b, {1, 0}, -1, {}), {std::cos(1.0), -std::sin(1.0)});
}

TEST(Rope, PassesTheRestThrough) {
  Host b(1, Layout::padded);
  const Values out = rotated(b, {1, 0, 7, -8, 9}, 3, {.n_rot = 2, .magnitude = 2});
  expect_values_near(out, {2 * std::cos(3.0), 2 * std::sin(3.0), 7, -8, 9});
}

TEST(Rope, KeepsEveryPairsLengthTimesTheMagnitude) {
  for (const RopeStyle style : {RopeStyle::neox, RopeStyle::interleaved}) {
    Host b(3, Layout::padded);
    const Values x = floats_of(b.values(DType::f32, {32}));
    const Values out = rotated(b, x, 12345, {.style = style, .magnitude = 1.5});
    for (std::size_t i = 0; i < 16; ++i) {
      const std::size_t first = style == RopeStyle::neox ? i : 2 * i;
      const std::size_t second = style == RopeStyle::neox ? i + 16 : 2 * i + 1;
      EXPECT_NEAR(std::hypot(out[first], out[second]), 1.5 * std::hypot(x[first], x[second]), 1e-5) << "pair " << i;
    }
  }
}

TEST(Rope, MakesProductsDependOnTheDistanceAlone) {
  Host b(4, Layout::padded);
  const Values q = floats_of(b.values(DType::f32, {32}));
  const Values k = floats_of(b.values(DType::f32, {32}));
  const auto product = [&](std::int32_t at_q, std::int32_t at_k) {
    const Values a = rotated(b, q, at_q, {});
    const Values c = rotated(b, k, at_k, {});
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(c[i]);
    return sum;
  };
  EXPECT_NEAR(product(7, 3), product(1004, 1000), 1e-4);
  EXPECT_GT(std::fabs(product(7, 3) - product(7, 2)), 1e-3);
}

TEST(Rope, LinearScalingDividesThePosition) {
  Host b(5, Layout::padded);
  const Values x = floats_of(b.values(DType::f32, {32}));
  const Values far = rotated(b, x, 40, {.scaling = RopeScaling::linear, .factor = 4});
  EXPECT_EQ(far, rotated(b, x, 10, {}));
  EXPECT_NE(far, rotated(b, x, 40, {.factor = 4})) << "without scaling the factor is not looked at";
  EXPECT_EQ(rotated(b, x, 40, {.factor = 4}), rotated(b, x, 40, {}));
}

TEST(Rope, DividesEachPairsFrequencyByItsFactor) {
  Host b(1, Layout::padded);
  const Values out = rotated(b, {1, 1, 0, 0}, 6, {.factors = b.f32({2}, {2, 3}), .base = 100});
  expect_values_near(out, {std::cos(3.0), std::cos(0.2), std::sin(3.0), std::sin(0.2)});
  // Beside linear scaling both divide.
  const Values both = rotated(
      b, {1, 1, 0, 0}, 6, {.factors = b.f32({2}, {2, 3}), .scaling = RopeScaling::linear, .base = 100, .factor = 2});
  expect_values_near(both, {std::cos(1.5), std::cos(0.1), std::sin(1.5), std::sin(0.1)});
}

// 64 elements, base 10000, trained on 4096 positions. Pairs that turn 32 times in those: c(32) = 64 ln(4096 / 64 pi) /
// (2 ln 10000) = 10.47, so low = 10. Pairs that turn once: c(1) = 22.51, so high = 23.
TEST(Rope, YarnLeavesFastPairsAndStretchesSlowOnes) {
  const Rope yarn{.n_rot = 64, .scaling = RopeScaling::yarn, .base = 10000, .factor = 4, .original_context = 4096};
  const std::vector<double> f = rope_frequencies(yarn);
  ASSERT_EQ(f.size(), 32U);
  for (std::size_t i = 0; i < 32; ++i) {
    const double e = std::pow(10000.0, -static_cast<double>(i) / 32);
    const double r = i <= 10 ? 0.0 : i >= 23 ? 1.0 : (static_cast<double>(i) - 10) / 13;
    EXPECT_NEAR(f[i] / e, 1 - r + r / 4, 1e-12) << "pair " << i;
  }
  EXPECT_EQ(f[0], 1) << "the fastest pair is left as it is";
  EXPECT_NEAR(f[31], std::pow(10000.0, -31.0 / 32) / 4, 1e-18) << "the slowest pair is divided by the factor";
}

// c(1000) is negative and c(1) = 8.8, rounded up to 9: both ends are held, to 0 and to n_rot - 1 = 7.
TEST(Rope, YarnHoldsItsRampToThePairs) {
  const std::vector<double> f = rope_frequencies(
      {.n_rot = 8, .scaling = RopeScaling::yarn, .base = 10, .factor = 2, .original_context = 1000, .beta_fast = 1000});
  for (std::size_t i = 0; i < 4; ++i) {
    const double r = static_cast<double>(i) / 7;
    EXPECT_NEAR(f[i] / std::pow(10.0, -static_cast<double>(i) / 4), 1 - r / 2, 1e-12) << "pair " << i;
  }
}

TEST(Rope, YarnWithoutARampIsAStep) {
  // Both ends lie below pair 0: low is held to 0, and no pair stands on the way to high. Pair 0 stays, the others are slow.
  const std::vector<double> f = rope_frequencies(
      {.n_rot = 8, .scaling = RopeScaling::yarn, .base = 10, .factor = 2, .original_context = 1, .beta_fast = 1});
  EXPECT_EQ(f[0], 1);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_NEAR(f[i] / std::pow(10.0, -static_cast<double>(i) / 4), 0.5, 1e-12) << "pair " << i;
  }
}

TEST(Rope, YarnScalesTheFrequencyThatTheFactorsGive) {
  Host b(1, Layout::padded);
  Rope op{.n_rot = 64, .scaling = RopeScaling::yarn, .base = 10000, .factor = 4, .original_context = 4096};
  const std::vector<double> without = rope_frequencies(op);
  op.factors = b.f32({32}, Values(32, 2));
  const std::vector<double> with = rope_frequencies(op);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_NEAR(with[i], without[i] / 2, 1e-15);
}

TEST(Rope, TurnsEveryHeadOfATokenAlikeAndEveryTokenByItself) {
  Host b(6, Layout::padded);
  const Values row = floats_of(b.values(DType::f32, {8}));
  Values all;
  for (int i = 0; i < 6; ++i) all.insert(all.end(), row.begin(), row.end());
  const Rope op{
      .x = b.f32({3, 2, 8}, all), .positions = b.i32({3}, {5, 0, 900}), .n_rot = 6, .out = b.out_f32({3, 2, 8})};
  run(op);
  const std::int32_t positions[] = {5, 0, 900};
  for (std::int64_t t = 0; t < 3; ++t) {
    const Values alone = rotated(b, row, positions[t], {.n_rot = 6});
    for (std::int64_t h = 0; h < 2; ++h) EXPECT_EQ(floats_of(select_outer(select_outer(op.out, t), h)), alone) << t;
  }
}

TEST(Rope, GivesTheSameBitsInPlace) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    for (const RopeStyle style : {RopeStyle::neox, RopeStyle::interleaved}) {
      Host b(7, Layout::padded);
      Rope op{.x = b.values(type, {3, 2, 10}),
              .positions = b.i32({3}, {1, 20, 300}),
              .n_rot = 8,
              .style = style,
              .out = b.output(type, {3, 2, 10})};
      run(op);
      const auto apart = dense_bits(op.out);
      op.out = op.x;
      run(op);
      EXPECT_EQ(dense_bits(op.out), apart) << dtype_info(type).name;
    }
  }
}

TEST(Rope, LeavesTokensPastLiveAlone) {
  for (const auto& [live, written] : {std::pair{2, 2}, {0, 0}, {-1, 0}, {4, 3}}) {
    Host b(1, Layout::padded);
    const Rope op{.x = b.values(DType::f32, {3, 2, 4}),
                  .positions = b.i32({3}, {1, 2, 3}),
                  .live = b.live(live),
                  .n_rot = 2,
                  .out = b.out_f32({3, 2, 4})};
    run(op);
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(untouched(slice(op.out, 0, r, 1)), r >= written) << "live " << live;
  }
}

TEST(Rope, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const Rope valid{.x = b.values(DType::f32, {3, 2, 8}),
                   .positions = b.i32({3}, {0, 1, 2}),
                   .factors = b.values(DType::f32, {3}),
                   .live = b.live(3),
                   .n_rot = 6,
                   .out = b.out_f32({3, 2, 8})};
  expect_all_needed_but(valid, {"factors", "live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](Rope& op) { op.x = b.values(DType::f32, {3, 8}); }, "rope: x is [3,8], expected [any,any,any]");
  expect([&](Rope& op) { op.x = b.integers({3, 2, 8}, 0, 1); }, "rope: x is i32, expected f32, f16, bf16");
  expect([&](Rope& op) { op.out = b.out_f32({3, 2, 6}); }, "rope: out is [3,2,6], expected [3,2,8]");
  expect([&](Rope& op) { op.positions = b.i32({2}, {0, 1}); }, "rope: positions is [2], expected [3]");
  expect([&](Rope& op) { op.positions = b.values(DType::f32, {3}); }, "rope: positions is f32, expected i32");
  expect([&](Rope& op) { op.live = b.integers({3}, 0, 1); }, "rope: live is [3], expected [1]");
  expect([&](Rope& op) { op.factors = b.values(DType::f32, {4}); }, "rope: factors is [4], expected [3]");
  expect([&](Rope& op) { op.factors = b.values(DType::f16, {3}); }, "rope: factors is f16, expected f32");
  expect([](Rope& op) { op.n_rot = 0; }, "rope: n_rot is 0, expected 2 to 8");
  expect([](Rope& op) { op.n_rot = 10; }, "rope: n_rot is 10, expected 2 to 8");
  expect([](Rope& op) { op.n_rot = 5; }, "rope: n_rot is 5, expected an even number");
  expect([](Rope& op) { op.base = 0; }, "rope: base is 0, expected a finite number above 0");
  expect([](Rope& op) { op.base = NAN; }, "rope: base is nan, expected a finite number above 0");
  expect([](Rope& op) { op.magnitude = -1; }, "rope: magnitude is -1, expected a finite number above 0");
  expect([](Rope& op) { op.factor = 0; }, "(accepted)");
  expect([](Rope& op) { op.scaling = RopeScaling::linear, op.factor = 0; },
         "rope: factor is 0, expected a finite number above 0");
}

TEST(Rope, RefusesYarnWithoutWhatItNeeds) {
  Host b(1, Layout::padded);
  const Rope valid{.x = b.values(DType::f32, {1, 1, 8}),
                   .positions = b.i32({1}, {0}),
                   .n_rot = 8,
                   .scaling = RopeScaling::yarn,
                   .factor = 2,
                   .original_context = 4096,
                   .out = b.out_f32({1, 1, 8})};
  ASSERT_EQ(refusal_of(valid), "(accepted)");
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([](Rope& op) { op.factor = INFINITY; }, "rope: factor is inf, expected a finite number above 0");
  expect([](Rope& op) { op.original_context = 0; }, "rope: original_context is 0, expected 1 to 1099511627776");
  expect([](Rope& op) { op.original_context = INT64_MAX; },
         "rope: original_context is 9223372036854775807, expected 1 to 1099511627776");
  expect([](Rope& op) { op.beta_fast = 0; }, "rope: beta_fast is 0, expected a finite number above 0");
  expect([](Rope& op) { op.beta_slow = -2; }, "rope: beta_slow is -2, expected a finite number above 0");
  expect([](Rope& op) { op.base = 1; }, "rope: base is 1, yarn needs one above 1");
}

}  // namespace
}  // namespace conclave::test
