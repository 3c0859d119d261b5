#include "base/checked.h"

#include <gtest/gtest.h>

#include <limits>

namespace conclave {
namespace {

template <class T>
constexpr T kMax = std::numeric_limits<T>::max();
template <class T>
constexpr T kMin = std::numeric_limits<T>::min();

// Usable at compile time.
static_assert(checked_add(2, 3) == 5);
static_assert(checked_mul<std::uint64_t>(1ULL << 32, 1ULL << 32) == std::nullopt);
static_assert(checked_align_up<std::uint32_t>(5, 4) == 8U);

template <class T>
class Checked : public testing::Test {};
using Integers = testing::Types<std::int8_t, std::uint8_t, std::int32_t, std::uint32_t, std::int64_t, std::uint64_t>;
TYPED_TEST_SUITE(Checked, Integers);

TYPED_TEST(Checked, AddReachesTheLargestAndNoFurther) {
  using T = TypeParam;
  EXPECT_EQ(checked_add<T>(kMax<T> - 1, 1), kMax<T>);
  EXPECT_EQ(checked_add<T>(kMax<T>, 0), kMax<T>);
  EXPECT_EQ(checked_add<T>(kMax<T>, 1), std::nullopt);
  EXPECT_EQ(checked_add<T>(kMax<T>, kMax<T>), std::nullopt);
}

TYPED_TEST(Checked, MulReachesTheLargestAndNoFurther) {
  using T = TypeParam;
  EXPECT_EQ(checked_mul<T>(kMax<T>, 1), kMax<T>);
  EXPECT_EQ(checked_mul<T>(kMax<T>, 0), T{0});
  EXPECT_EQ(checked_mul<T>(kMax<T> / 2, 2), static_cast<T>(kMax<T> / 2 * 2));
  EXPECT_EQ(checked_mul<T>(kMax<T> / 2 + 1, 2), std::nullopt);
  EXPECT_EQ(checked_mul<T>(kMax<T>, kMax<T>), std::nullopt);
}

TEST(CheckedSigned, ReachesTheSmallestAndNoFurther) {
  EXPECT_EQ(checked_add<std::int64_t>(kMin<std::int64_t> + 1, -1), kMin<std::int64_t>);
  EXPECT_EQ(checked_add<std::int64_t>(kMin<std::int64_t>, -1), std::nullopt);
  EXPECT_EQ(checked_mul<std::int64_t>(kMin<std::int64_t>, 1), kMin<std::int64_t>);
  EXPECT_EQ(checked_mul<std::int64_t>(kMin<std::int64_t>, -1), std::nullopt);
  EXPECT_EQ(checked_mul<std::int64_t>(-3, 5), -15);
}

TEST(CheckedAlignUp, GivesTheNextMultiple) {
  EXPECT_EQ(checked_align_up<std::uint64_t>(0, 32), 0U);
  EXPECT_EQ(checked_align_up<std::uint64_t>(1, 32), 32U);
  EXPECT_EQ(checked_align_up<std::uint64_t>(32, 32), 32U);
  EXPECT_EQ(checked_align_up<std::uint64_t>(33, 32), 64U);
  EXPECT_EQ(checked_align_up<std::uint64_t>(10, 7), 14U) << "any alignment, not only powers of two";
  EXPECT_EQ(checked_align_up<std::uint64_t>(123, 1), 123U);
}

TEST(CheckedAlignUp, SaysWhereThereIsNoNextMultiple) {
  EXPECT_EQ(checked_align_up<std::uint8_t>(248, 8), std::uint8_t{248});
  EXPECT_EQ(checked_align_up<std::uint8_t>(249, 8), std::nullopt);
  EXPECT_EQ(checked_align_up<std::uint64_t>(kMax<std::uint64_t>, 1), kMax<std::uint64_t>);
  EXPECT_EQ(checked_align_up<std::uint64_t>(kMax<std::uint64_t>, 2), std::nullopt);
  EXPECT_EQ(checked_align_up<std::uint64_t>(1, kMax<std::uint64_t>), kMax<std::uint64_t>);
}

}  // namespace
}  // namespace conclave
