#include "ops/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  Host b(1, Layout::padded);
  // (4 + 36) / 2 = 20, and 5 makes 25: divided by 5, then times the weight.
  const RmsNorm op{
      .x = b.f32({2, 2}, {2, 6, -6, 2}), .weight = b.f32({2}, {10, 5}), .eps = 5, .out = b.out_f32({2, 2})};
  run(op);
  EXPECT_EQ(floats_of(op.out), (Values{4, 6, -12, 2}));
}

TEST(RmsNorm, NormsEveryHeadByItselfWithOneWeight) {
  Host b(1, Layout::padded);
  // One token, three heads: mean squares 20, 0 and 20 * 4.
  const RmsNorm op{
      .x = b.f32({1, 3, 2}, {2, 6, 0, 0, 4, 12}), .weight = b.f32({2}, {10, 5}), .eps = 5, .out = b.out_f32({1, 3, 2})};
  run(op);
  const Values out = floats_of(op.out);
  EXPECT_EQ(Values(out.begin(), out.begin() + 4), (Values{4, 6, 0, 0}));
  EXPECT_FLOAT_EQ(out[4], static_cast<float>(40 / std::sqrt(85.0)));
  EXPECT_FLOAT_EQ(out[5], static_cast<float>(60 / std::sqrt(85.0)));
}

TEST(RmsNorm, GivesARowOfUnitMeanSquareWhateverItsScale) {
  for (const double scale : {1e-3, 1.0, 1e6}) {
    Host b(7, Layout::padded);
    const RmsNorm op{.x = b.values(DType::f32, {1, 300}, scale),
                     .weight = b.f32({300}, Values(300, 1)),
                     .eps = 1e-20F,
                     .out = b.out_f32({1, 300})};
    run(op);
    double squares = 0;
    for (const float value : floats_of(op.out)) squares += static_cast<double>(value) * static_cast<double>(value);
    EXPECT_NEAR(squares / 300, 1, 1e-6) << scale;
  }
}

TEST(RmsNorm, KeepsANanInItsRow) {
  Host b(1, Layout::padded);
  const RmsNorm op{
      .x = b.f32({2, 2}, {1, NAN, 3, 3}), .weight = b.f32({2}, {1, 1}), .eps = 16, .out = b.out_f32({2, 2})};
  run(op);
  const Values out = floats_of(op.out);
  EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
  EXPECT_FLOAT_EQ(out[2], 0.6F);
  EXPECT_FLOAT_EQ(out[3], 0.6F);
}

TEST(RmsNorm, GivesTheSameBitsInPlace) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    Host b(3, Layout::padded);
    RmsNorm op{.x = b.values(type, {3, 2, 17}), .weight = b.values(type, {17}), .out = b.output(type, {3, 2, 17})};
    run(op);
    const auto apart = dense_bits(op.out);
    op.out = op.x;
    run(op);
    EXPECT_EQ(dense_bits(op.out), apart) << dtype_info(type).name;
  }
}

TEST(RmsNorm, CountsLiveTokensNotHeads) {
  for (const auto& [live, written] : {std::pair{2, 2}, {0, 0}, {-1, 0}, {9, 3}}) {
    Host b(1, Layout::padded);
    RmsNorm op{.x = b.values(DType::f32, {3, 4}),
               .weight = b.values(DType::f32, {4}),
               .live = b.live(live),
               .out = b.out_f32({3, 4})};
    run(op);
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(untouched(slice(op.out, 0, r, 1)), r >= written) << "live " << live;
    op.x = b.values(DType::f32, {3, 5, 4});
    op.out = b.out_f32({3, 5, 4});
    run(op);
    for (std::int64_t r = 0; r < 3; ++r)
      EXPECT_EQ(untouched(slice(op.out, 0, r, 1)), r >= written) << "heads, live " << live;
    if (written > 0) {
      EXPECT_FALSE(untouched(select_outer(select_outer(op.out, written - 1), 4)))
          << "every head of the last live token";
    }
  }
}

TEST(RmsNorm, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const RmsNorm valid{.x = b.values(DType::f32, {3, 4}),
                      .weight = b.values(DType::f32, {4}),
                      .live = b.live(3),
                      .out = b.out_f32({3, 4})};
  expect_all_needed_but(valid, {"live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](RmsNorm& op) { op.x = b.values(DType::f32, {4}); }, "rms_norm: x is [4], expected 2 to 3 dimensions");
  expect(
      [&](RmsNorm& op) {
        op.x = b.values(DType::f32, {1, 1, 3, 4});
      },
      "rms_norm: x is [1,1,3,4], expected 2 to 3 dimensions");
  expect([&](RmsNorm& op) { op.x = b.integers({3, 4}, 0, 1); }, "rms_norm: x is i32, expected f32, f16, bf16");
  expect(
      [&](RmsNorm& op) {
        op.x = b.weights(DType::q8_0, {3, 1, 32});
      },
      "rms_norm: x is q8_0, expected f32, f16, bf16");
  expect([&](RmsNorm& op) { op.out = b.out_f32({3, 5}); }, "rms_norm: out is [3,5], expected [3,4]");
  expect([&](RmsNorm& op) { op.x = b.values(DType::f32, {3, 2, 4}); }, "rms_norm: out is [3,4], expected [3,2,4]");
  expect([&](RmsNorm& op) { op.weight = b.values(DType::f32, {3}); }, "rms_norm: weight is [3], expected [4]");
  expect([&](RmsNorm& op) { op.weight = b.weights(DType::q8_0, {32}); },
         "rms_norm: weight is q8_0, expected f32, f16, bf16");
  expect([&](RmsNorm& op) { op.live = b.integers({3}, 0, 1); }, "rms_norm: live is [3], expected [1]");
  expect([](RmsNorm& op) { op.eps = 0; }, "rms_norm: eps is 0, expected a finite number above 0");
  expect([](RmsNorm& op) { op.eps = -1; }, "rms_norm: eps is -1, expected a finite number above 0");
  expect([](RmsNorm& op) { op.eps = NAN; }, "rms_norm: eps is nan, expected a finite number above 0");
  expect([](RmsNorm& op) { op.eps = INFINITY; }, "rms_norm: eps is inf, expected a finite number above 0");
}

}  // namespace
}  // namespace conclave::test
