#include "ops/argmax.h"

#include <gtest/gtest.h>

#include <cmath>

#include "op_test_support.h"

namespace conclave::test {
namespace {

std::int32_t winner(const std::vector<float>& row) {
  Host b(1, Layout::padded);
  const Argmax op{.x = b.f32({1, static_cast<std::int64_t>(row.size())}, row), .ids = b.out_i32({1})};
  run(op);
  return ints_of(op.ids)[0];
}

TEST(Argmax, FindsTheLargestOfEachRow) {
  Host b(1, Layout::padded);
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    const Argmax op{.x = b.floats(type, {3, 4}, {1, 4, 2, 3, -8, -5, -6, -7, 9, 0, 0, 0}), .ids = b.out_i32({3})};
    run(op);
    EXPECT_EQ(ints_of(op.ids), (std::vector<std::int32_t>{1, 1, 0})) << dtype_info(type).name;
  }
  EXPECT_EQ(winner({5}), 0);
  EXPECT_EQ(winner({-1, -2, INFINITY}), 2);
}

TEST(Argmax, GivesTiesToTheLowerIndex) {
  EXPECT_EQ(winner({1, 3, 3, 3}), 1);
  EXPECT_EQ(winner({0, 0, 0}), 0);
  EXPECT_EQ(winner({-1, INFINITY, INFINITY}), 1);
}

TEST(Argmax, TakesMinusZeroAndPlusZeroAsEqual) {
  EXPECT_EQ(winner({-1, -0.0F, 0.0F}), 1);
  EXPECT_EQ(winner({-1, 0.0F, -0.0F}), 1);
}

TEST(Argmax, NeverChoosesANan) {
  EXPECT_EQ(winner({NAN, 1, 2}), 2);
  EXPECT_EQ(winner({1, NAN, 0}), 0);
  EXPECT_EQ(winner({-5, NAN, -3, NAN}), 2);
  EXPECT_EQ(winner({-NAN, -1e30F}), 1);
}

TEST(Argmax, GivesMinusOneWhereNothingIsAboveMinusInfinity) {
  EXPECT_EQ(winner({-INFINITY, -INFINITY}), -1);
  EXPECT_EQ(winner({NAN, NAN}), -1);
  EXPECT_EQ(winner({NAN, -INFINITY}), -1);
}

TEST(Argmax, LeavesRowsPastLiveAlone) {
  for (const auto& [live, written] : {std::pair{2, 2}, {0, 0}, {-1, 0}, {4, 3}}) {
    Host b(1, Layout::padded);
    const Argmax op{.x = b.values(DType::f32, {3, 2}), .live = b.live(live), .ids = b.out_i32({3})};
    run(op);
    for (std::int64_t r = 0; r < 3; ++r) EXPECT_EQ(untouched(slice(op.ids, 0, r, 1)), r >= written) << "live " << live;
  }
}

TEST(Argmax, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const Argmax valid{.x = b.values(DType::f32, {3, 4}), .live = b.live(3), .ids = b.out_i32({3})};
  expect_all_needed_but(valid, {"live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](Argmax& op) { op.x = b.values(DType::f32, {3, 2, 2}); }, "argmax: x is [3,2,2], expected [any,any]");
  expect([&](Argmax& op) { op.x = b.integers({3, 4}, 0, 1); }, "argmax: x is i32, expected f32, f16, bf16");
  expect(
      [&](Argmax& op) {
        op.x = b.values(DType::f32, {3, 0});
      },
      "argmax: the length of a row is 0, expected 1 to 2147483647");
  expect([&](Argmax& op) { op.live = b.integers({4}, 0, 1); }, "argmax: live is [4], expected [1]");
  expect([&](Argmax& op) { op.ids = b.out_i32({4}); }, "argmax: ids is [4], expected [3]");
  expect([&](Argmax& op) { op.ids = b.out_u32({3}); }, "argmax: ids is u32, expected i32");
  expect(
      [&](Argmax& op) {  // no rows: a row of 2^31 needs no memory
        op.x = b.values(DType::f32, {0, 4});
        op.x.dims[1] = std::int64_t{1} << 31;
        op.ids = b.out_i32({0});
      },
      "argmax: the length of a row is 2147483648, expected 1 to 2147483647");
}

}  // namespace
}  // namespace conclave::test
