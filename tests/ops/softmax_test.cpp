#include "ops/softmax.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"

namespace conclave::test {
namespace {

using Values = std::vector<float>;

Values softmax_of(const Values& row, float scale = 1) {
  Host b(1, Layout::padded);
  const auto d = static_cast<std::int64_t>(row.size());
  const Softmax op{.x = b.f32({1, d}, row), .scale = scale, .out = b.out_f32({1, d})};
  run(op);
  return floats_of(op.out);
}

bool all_nan(const Values& row) {
  return std::all_of(row.begin(), row.end(), [](float x) { return std::isnan(x); });
}

TEST(Softmax, GivesSharesOfTheExponentials) {
  const auto ln = [](double x) { return static_cast<float>(std::log(x)); };
  const Values out = softmax_of({ln(1), ln(3), ln(4)});  // 1 + 3 + 4 = 8
  EXPECT_NEAR(out[0], 0.125, 1e-7);
  EXPECT_NEAR(out[1], 0.375, 1e-7);
  EXPECT_NEAR(out[2], 0.5, 1e-7);
  EXPECT_EQ(softmax_of({7, 7, 7, 7}), (Values{0.25, 0.25, 0.25, 0.25}));
  EXPECT_EQ(softmax_of({-3}), (Values{1}));
}

TEST(Softmax, ScalesBeforeItCompares) {
  EXPECT_EQ(softmax_of({1, 2, 3}, 4), softmax_of({4, 8, 12}));
  EXPECT_EQ(softmax_of({1, 2, 3}, 0.5F), softmax_of({0.5, 1, 1.5}));
}

TEST(Softmax, IsTheSameForAShiftedRow) {
  EXPECT_EQ(softmax_of({1000, 1001, 1003}), softmax_of({0, 1, 3}));
  EXPECT_EQ(softmax_of({-60000, -60001}), softmax_of({0, -1}));
}

TEST(Softmax, NeitherOverflowsNorLosesTheRow) {
  EXPECT_EQ(softmax_of({3e38F, -3e38F}), (Values{1, 0}));
  EXPECT_EQ(softmax_of({3e38F, 3e38F}, 100), (Values{0.5, 0.5}));
}

TEST(Softmax, GivesMinusInfinityBesideNumbersNothing) {
  EXPECT_EQ(softmax_of({-INFINITY, 2, 2, -INFINITY}), (Values{0, 0.5, 0.5, 0}));
}

TEST(Softmax, MakesTheWholeRowNanForNanAndPlusInfinity) {
  EXPECT_TRUE(all_nan(softmax_of({NAN, 1, 2})));
  EXPECT_TRUE(all_nan(softmax_of({1, NAN, 2})));
  EXPECT_TRUE(all_nan(softmax_of({1, 2, NAN})));
  EXPECT_TRUE(all_nan(softmax_of({1, INFINITY, 2})));
  EXPECT_TRUE(all_nan(softmax_of({-INFINITY, INFINITY})));
  EXPECT_TRUE(all_nan(softmax_of({-INFINITY, -INFINITY})));
}

TEST(Softmax, KeepsRowsApart) {
  Host b(1, Layout::padded);
  const Softmax op{.x = b.f32({3, 2}, {NAN, 1, 5, 5, INFINITY, 0}), .out = b.out_f32({3, 2})};
  run(op);
  const Values out = floats_of(op.out);
  EXPECT_TRUE(all_nan({out[0], out[1], out[4], out[5]}));
  EXPECT_EQ(Values(out.begin() + 2, out.begin() + 4), (Values{0.5, 0.5}));
}

TEST(Softmax, GivesTheSameBitsInPlace) {
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    Host b(5, Layout::padded);
    Softmax op{.x = b.values(type, {4, 19}, 3), .scale = 0.7F, .out = b.output(type, {4, 19})};
    run(op);
    const auto apart = dense_bits(op.out);
    op.out = op.x;
    run(op);
    EXPECT_EQ(dense_bits(op.out), apart) << dtype_info(type).name;
  }
}

TEST(Softmax, LeavesRowsPastLiveAlone) {
  for (const auto& [live, written] : {std::pair{1, 1}, {0, 0}, {-1, 0}, {4, 3}}) {
    Host b(1, Layout::padded);
    const Softmax op{.x = b.values(DType::f32, {3, 2}), .live = b.live(live), .out = b.out_f32({3, 2})};
    run(op);
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(untouched(slice(op.out, 0, r, 1)), r >= written) << "live " << live;
  }
}

TEST(Softmax, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const Softmax valid{.x = b.values(DType::f32, {3, 4}), .live = b.live(3), .out = b.out_f32({3, 4})};
  expect_all_needed_but(valid, {"live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](Softmax& op) { op.x = b.values(DType::f32, {4}); }, "softmax: x is [4], expected [any,any]");
  expect([&](Softmax& op) { op.x = b.integers({3, 4}, 0, 1); }, "softmax: x is i32, expected f32, f16, bf16");
  expect([&](Softmax& op) { op.x = b.values(DType::f32, {3, 0}); }, "softmax: x is [3,0]: rows are empty");
  expect([&](Softmax& op) { op.live = b.integers({4}, 0, 1); }, "softmax: live is [4], expected [1]");
  expect([&](Softmax& op) { op.out = b.out_f32({3, 5}); }, "softmax: out is [3,5], expected [3,4]");
  expect([&](Softmax& op) { op.out = b.out_i32({3, 4}); }, "softmax: out is i32, expected f32, f16, bf16");
  expect([](Softmax& op) { op.scale = 0; }, "softmax: scale is 0, expected a finite number above 0");
  expect([](Softmax& op) { op.scale = -0.5F; }, "softmax: scale is -0.5, expected a finite number above 0");
  expect([](Softmax& op) { op.scale = NAN; }, "softmax: scale is nan, expected a finite number above 0");
  expect([](Softmax& op) { op.scale = INFINITY; }, "softmax: scale is inf, expected a finite number above 0");
}

}  // namespace
}  // namespace conclave::test
