#include "ops/top_k.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "op_test_support.h"

namespace conclave::test {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();

struct Best {
  std::vector<std::int32_t> ids;
  std::vector<float> values;
};
Best best_of(const std::vector<float>& row, std::int64_t k) {
  Host b(1, Layout::padded);
  const TopK op{.x = b.f32({1, static_cast<std::int64_t>(row.size())}, row),
                .ids = b.out_i32({1, k}),
                .values = b.out_f32({1, k})};
  run(op);
  return {ints_of(op.ids), floats_of(op.values)};
}

TEST(TopK, RanksLargerOnesFirstAndOfEqualOnesTheLowerIndex) {
  const Best best = best_of({1, 3, -2, 3, 2}, 4);
  EXPECT_EQ(best.ids, (std::vector<std::int32_t>{1, 3, 4, 0}));
  EXPECT_EQ(best.values, (std::vector<float>{3, 3, 2, 1}));
  EXPECT_EQ(best_of({-0.0F, 0.0F, -0.0F}, 3).ids, (std::vector<std::int32_t>{0, 1, 2}));
  EXPECT_FALSE(std::signbit(best_of({-0.0F}, 1).values[0]));
}

TEST(TopK, LeavesPlacesEmptyWhereNothingUsableIsLeft) {
  const Best best = best_of({NAN, -INFINITY, -7}, 3);
  EXPECT_EQ(best.ids, (std::vector<std::int32_t>{2, -1, -1}));
  EXPECT_EQ(best.values, (std::vector<float>{-7, -INFINITY, -INFINITY}));
  EXPECT_EQ(best_of({5}, 3).ids, (std::vector<std::int32_t>{0, -1, -1}));
}

TEST(TopK, TakesPlusInfinityAsTheLargestFloat) {
  const Best best = best_of({1, kLargest, INFINITY}, 2);
  EXPECT_EQ(best.ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(best.values, (std::vector<float>{kLargest, kLargest}));
}

TEST(TopK, KeysGoBackToWhatTheyWereMadeOf) {
  for (const float x : {-kLargest, -1.5F, -1e-45F, 0.0F, 1e-45F, 2.0F, kLargest}) {
    for (const std::int32_t index : {0, 1, INT32_MAX}) {
      EXPECT_EQ(value_of_key(top_key(x, index)), x);
      EXPECT_EQ(index_of_key(top_key(x, index)), index);
      EXPECT_GT(top_key(x, index), 0U);
    }
  }
  EXPECT_EQ(top_key(NAN, 3), 0U);
  EXPECT_EQ(top_key(-INFINITY, 3), 0U);
  EXPECT_GT(top_key(1, 5), top_key(1, 6));
}

TEST(TopK, RefusesWhatDoesNotFit) {
  Host b(1, Layout::padded);
  const TopK valid{
      .x = b.values(DType::f32, {3, 4}), .live = b.live(3), .ids = b.out_i32({3, 2}), .values = b.out_f32({3, 2})};
  expect_all_needed_but(valid, {"live"});
  expect_bad_views_refused(valid);
  const auto expect = [&](const auto& edit, std::string_view part) { expect_refusal(valid, edit, part); };
  expect([&](TopK& op) { op.ids = b.out_i32({4, 2}); }, "top_k: ids is [4,2], expected [3,any]");
  expect([&](TopK& op) { op.ids = b.out_i32({3, 257}); }, "top_k: k is 257, expected 1 to 256");
  expect([&](TopK& op) { op.values = b.out_f32({3, 3}); }, "top_k: values is [3,3], expected [3,2]");
  expect([&](TopK& op) { op.values = b.output(DType::f16, {3, 2}); }, "top_k: values is f16, expected f32");
}

}  // namespace
}  // namespace conclave::test
