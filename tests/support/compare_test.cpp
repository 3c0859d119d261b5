// The comparator must reject what it must.
#include "support/compare.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "support/poison.h"

namespace conclave::test {
namespace {

using Bits = std::vector<std::uint32_t>;

Bits bits_of(const std::vector<float>& values) {
  Bits bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

Comparison compare(const std::vector<float>& got, const std::vector<float>& expected, double bound = 1e-3) {
  const std::vector<double> bounds(expected.size(), bound);
  return compare_floats(bits_of(got), bits_of(expected), {.bound = bounds});
}

TEST(Compare, AcceptsWhatLiesWithinItsBound) {
  EXPECT_TRUE(compare({1.0F, -2.0F, 0.0F}, {1.0005F, -2.0005F, 0.0F}).ok);
  EXPECT_TRUE(compare({}, {}).ok);
}

TEST(Compare, RejectsOneBadElementAmongMany) {
  std::vector<float> expected(10000, 1.0F);
  std::vector<float> got = expected;
  got[7777] = 1.002F;
  const Comparison result = compare(got, expected);
  EXPECT_FALSE(result.ok);
  EXPECT_NE(result.message.find("7777"), std::string::npos) << result.message;
}

TEST(Compare, RejectsTwoWrongNegatives) {
  EXPECT_FALSE(compare({-1.0F, -2.0F}, {1.0F, 2.0F}).ok);
  EXPECT_FALSE(compare({-5.0F, -6.0F}, {-1.0F, -2.0F}).ok);
  EXPECT_FALSE(compare({-1.0F, -2.0F}, {-5.0F, -6.0F}).ok);
}

TEST(Compare, RejectsSwappedRows) {
  EXPECT_FALSE(compare({3, 4, 1, 2}, {1, 2, 3, 4}).ok);
}

TEST(Compare, RejectsNaNAndInfinity) {
  EXPECT_FALSE(compare({1.0F, NAN}, {1.0F, 2.0F}).ok);
  EXPECT_FALSE(compare({1.0F, INFINITY}, {1.0F, 2.0F}).ok);
  EXPECT_FALSE(compare({1.0F, 2.0F}, {1.0F, NAN}).ok);
  EXPECT_FALSE(compare({INFINITY}, {-INFINITY}).ok);
  EXPECT_FALSE(compare({NAN}, {INFINITY}).ok);
  EXPECT_FALSE(compare({1.0F}, {2.0F}, NAN).ok);  // a bound that is no number allows nothing
}

TEST(Compare, AcceptsTheNaNAndTheInfinityThatWereExpected) {
  EXPECT_TRUE(compare({NAN, INFINITY, -INFINITY}, {NAN, INFINITY, -INFINITY}).ok);
}

TEST(Compare, AcceptsAnOverflowThatTheBoundExplains) {
  const auto stored = [](float got, float expected, double bound) {
    const std::vector<double> bounds = {bound};
    return compare_floats(bits_of({got}), bits_of({expected}), {.bound = bounds, .overflow = 65520}).ok;
  };
  EXPECT_TRUE(stored(-INFINITY, INFINITY, 131041));
  EXPECT_FALSE(stored(-INFINITY, INFINITY, 131039));
  EXPECT_TRUE(stored(65504, INFINITY, 17));
  EXPECT_FALSE(stored(INFINITY, 65504, 15));
  EXPECT_FALSE(stored(NAN, INFINITY, 1e9));
  EXPECT_FALSE(stored(INFINITY, NAN, 1e9));
  EXPECT_FALSE(stored(-INFINITY, INFINITY, INFINITY));       // a bound that is no number explains nothing
  EXPECT_FALSE(compare({-INFINITY}, {INFINITY}, 1e300).ok);  // of a type that has room
}

TEST(Compare, RejectsAnOutputNobodyWrote) {
  const float poison = std::bit_cast<float>(kPoisonF32);
  EXPECT_FALSE(compare({1.0F, poison}, {1.0F, 2.0F}).ok);
  EXPECT_FALSE(compare({1.0F, poison}, {1.0F, NAN}).ok);
}

TEST(Compare, RejectsAWriteWhereNoneWasDue) {
  const float poison = std::bit_cast<float>(kPoisonF32);
  EXPECT_TRUE(compare({poison}, {poison}).ok);
  EXPECT_FALSE(compare({0.0F}, {poison}).ok);
  EXPECT_FALSE(compare({NAN}, {poison}).ok);
}

TEST(Compare, RejectsAnotherLength) {
  EXPECT_FALSE(compare({1.0F}, {1.0F, 2.0F}).ok);
  EXPECT_FALSE(compare({1.0F, 2.0F}, {1.0F}).ok);
  const Bits one = bits_of({1.0F});
  EXPECT_FALSE(compare_floats(one, one, {.bound = {}}).ok);
  const std::vector<double> bound(1, 1.0);
  const std::vector<Noise> two(2);
  EXPECT_FALSE(compare_floats(one, one, {.bound = bound, .noise = two}).ok);
}

TEST(Compare, RejectsByTheMeanWhatEveryElementWouldPass) {
  const std::vector<float> expected(100, 1.0F);
  const std::vector<float> got(100, 1.01F);
  const std::vector<double> wide(100, 0.5);
  EXPECT_FALSE(compare_floats(bits_of(got), bits_of(expected), {.bound = wide, .nmse = 1e-6}).ok);
  EXPECT_TRUE(compare_floats(bits_of(got), bits_of(expected), {.bound = wide, .nmse = 1e-3}).ok);
}

// n elements, each expected to be 1 and off by `error` standard deviations, in rows of `per_row`.
Comparison compare_noisy(std::size_t n, std::int64_t per_row, double error, double variance = 1e-4) {
  const std::vector<float> expected(n, 1.0F);
  const std::vector<float> got(n, static_cast<float>(1 + error * 1e-2));
  const std::vector<double> wide(n, 0.5);
  std::vector<Noise> noise;
  for (std::size_t i = 0; i < n; ++i) noise.push_back({variance, static_cast<std::int64_t>(i) / per_row});
  return compare_floats(bits_of(got), bits_of(expected), {.bound = wide, .nmse = 1e-6, .noise = noise});
}

TEST(Compare, LetsNoisePassTheCeilingInASmallSample) {
  for (const std::size_t n : {std::size_t{1}, std::size_t{40}}) {
    EXPECT_TRUE(compare_noisy(n, 100, 3.9).ok) << n;  // one row, one independent error: four standard deviations
    EXPECT_FALSE(compare_noisy(n, 100, 4.1).ok) << n;
  }
}

TEST(Compare, HoldsManyRowsToTheirMean) {
  EXPECT_TRUE(compare_noisy(900, 1, 1.05).ok);  // 1 + 3 / sqrt(rows)
  EXPECT_FALSE(compare_noisy(900, 1, 1.15).ok);
  EXPECT_TRUE(compare_noisy(900, 100, 1.95).ok);
  EXPECT_FALSE(compare_noisy(900, 100, 2.05).ok);
}

TEST(Compare, AllowsNothingForNoNoise) {
  EXPECT_FALSE(compare_noisy(10, 1, 0.2, 0).ok);
  EXPECT_FALSE(compare_noisy(10, 1, 0.2, NAN).ok);
  EXPECT_TRUE(compare_noisy(10, 1, 0, 0).ok);
}

TEST(Compare, NoiseExcusesNoElementThatIsPastItsBound) {
  const std::vector<double> bound = {0.5};
  const std::vector<Noise> noise = {{.variance = 100}};
  EXPECT_FALSE(compare_floats(bits_of({2.0F}), bits_of({1.0F}), {.bound = bound, .noise = noise}).ok);
}

TEST(Compare, ReportsTheElementClosestToItsBound) {
  const std::vector<double> bounds = {1.0, 0.1};
  const Comparison result = compare_floats(bits_of({0.5F, 1.09F}), bits_of({0.0F, 1.0F}), {.bound = bounds, .nmse = 1});
  EXPECT_TRUE(result.ok);
  EXPECT_NEAR(result.worst, 0.09, 1e-6);
  EXPECT_EQ(result.bound, 0.1);
}

TEST(Compare, IntegersAreEqualOrWrong) {
  EXPECT_TRUE(compare_ints(Bits{1, 2, kPoisonInt}, Bits{1, 2, kPoisonInt}).ok);
  EXPECT_FALSE(compare_ints(Bits{1, 2}, Bits{2, 1}).ok);
  EXPECT_FALSE(compare_ints(Bits{kPoisonInt}, Bits{0}).ok);
  EXPECT_FALSE(compare_ints(Bits{1}, Bits{1, 2}).ok);
}

}  // namespace
}  // namespace conclave::test
