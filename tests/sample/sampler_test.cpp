#include "sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "sample/sample_exp.h"

namespace conclave {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Nothing but the temperature, which is 1.
SamplerOptions plain() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 7};
}

std::vector<int> draws(Sampler sampler, const std::vector<float>& logits, int n) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < n; ++i) ++counts[static_cast<std::size_t>(sampler.next(logits))];
  return counts;
}

std::vector<int> draws(const SamplerOptions& options, const std::vector<float>& logits, int n = 2000) {
  return draws(Sampler(options, static_cast<std::int64_t>(logits.size())), logits, n);
}

// Which tokens are ever drawn.
std::string support(const SamplerOptions& options, const std::vector<float>& logits) {
  const std::vector<int> counts = draws(options, logits);
  std::string ids;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) ids += std::to_string(i) + " ";
  }
  return ids;
}

std::string error_of(const SamplerOptions& options) {
  try {
    validate(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

// Logits that give these probabilities.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  double n = 0;
  for (const int c : counts) n += c;
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (probabilities[i] == 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    const double expected = n * probabilities[i];
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(Random, NumbersAreFixedForEver) {
  Random random(42);
  const std::uint64_t first = random.bits();
  Random copy = random;
  EXPECT_EQ(first, Random(42).bits());
  EXPECT_EQ(copy.bits(), random.bits());
  // Written down once: texts made with a seed must not change.
  EXPECT_EQ(Random(0).bits(), 0xA706DD2F4D197E6FU);
  EXPECT_EQ(Random(1).bits(), 0x5E41AB087439611EU);
}

TEST(Random, UniformStaysBelowOneAndFillsItsRangeEvenly) {
  Random random(3);
  std::vector<int> counts(64);
  for (int i = 0; i < 64000; ++i) {
    const double u = random.uniform();
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++counts[static_cast<std::size_t>(u * 64)];
  }
  // 63 degrees of freedom: above 103.4 once in 1000.
  EXPECT_LT(chi_square(counts, std::vector<double>(64, 1.0 / 64)), 103.4);
}

TEST(SampleExp, IsWithinTwoUlpAndEndsAtZero) {
  for (double x = 0; x > -707; x -= 0.0137) {
    const double exact = std::exp(x);
    EXPECT_NEAR(sample_exp(x) / exact, 1.0, 4.5e-16) << x;
  }
  EXPECT_EQ(sample_exp(0.0), 1.0);
  EXPECT_EQ(sample_exp(-0.0), 1.0);
  EXPECT_EQ(sample_exp(-1e300), 0.0);
  EXPECT_EQ(sample_exp(-std::numeric_limits<double>::infinity()), 0.0);
  EXPECT_EQ(sample_exp(std::numeric_limits<double>::quiet_NaN()), 0.0);
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerIdOfEquals) {
  Sampler greedy({.temperature = 0}, 5);
  EXPECT_EQ(greedy.next(std::vector<float>{1, 3, 2, 3, 0}), 1);
  EXPECT_EQ(greedy.next(std::vector<float>{-0.0F, 0.0F, -1, -1, -1}), 0);
  EXPECT_EQ(greedy.next(std::vector<float>{-5, -kInf, -4, -4.5F, kNan}), 2);
}

TEST(Sampler, NanAndInfinities) {
  const float largest = std::numeric_limits<float>::max();
  for (const double temperature : {0.0, 1.0}) {
    SamplerOptions options = plain();
    options.temperature = temperature;
    Sampler sampler(options, 4);
    EXPECT_EQ(sampler.next(std::vector<float>{kNan, 1, kNan, -kInf}), 1);
    EXPECT_EQ(sampler.next(std::vector<float>{0, kNan, kInf, 5}), 2);
    EXPECT_EQ(sampler.next(std::vector<float>{-largest, -largest, kNan, 3}), 3);
    EXPECT_THROW(sampler.next(std::vector<float>(4, kNan)), Error);
    EXPECT_THROW(sampler.next(std::vector<float>(4, -kInf)), Error);
    EXPECT_THROW(sampler.next(std::vector<float>{kNan, -kInf, kNan, -kInf}), Error);
  }
  // Plus infinity is the largest float: two of them share, and the first wins ties.
  EXPECT_EQ(support(plain(), {kInf, 1, largest, kNan}), "0 2 ");
  SamplerOptions one = plain();
  one.top_k = 1;
  EXPECT_EQ(support(one, {1, largest, kInf, kNan}), "1 ");
  // But for a greedy one, which is argmax: infinity is larger.
  Sampler greedy({.temperature = 0}, 4);
  EXPECT_EQ(greedy.next(std::vector<float>{1, largest, kInf, kNan}), 2);
  EXPECT_EQ(greedy.next(std::vector<float>{1, kInf, largest, kInf}), 1);
}

TEST(Sampler, TopKKeepsKAndBreaksTiesByTheLowerId) {
  SamplerOptions options = plain();
  options.top_k = 2;
  EXPECT_EQ(support(options, {0, 1, 0.5F, 1.2F, 0.9F}), "1 3 ");
  EXPECT_EQ(support(options, {1, 1, 1, 1, 1}), "0 1 ");
  EXPECT_EQ(support(options, {0, 1, 1, 2, 1}), "1 3 ");
  EXPECT_EQ(support(options, {kNan, 0, -kInf, kNan, -kInf}), "1 ");
  options.top_k = 1000;
  EXPECT_EQ(support(options, {1, 1, 1}), "0 1 2 ");
  options.top_k = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(support(options, {1, 1, 1}), "0 1 2 ");
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const auto logits = logits_of({0.1, 0.4, 0.05, 0.3, 0.15});
  SamplerOptions options = plain();
  options.top_p = 0.39;
  EXPECT_EQ(support(options, logits), "1 ");
  options.top_p = 0.69;
  EXPECT_EQ(support(options, logits), "1 3 ");
  options.top_p = 0.71;
  EXPECT_EQ(support(options, logits), "1 3 4 ");
  options.top_p = 0.0;  // the best one always stays
  EXPECT_EQ(support(options, logits), "1 ");
  // Equal ones: the lower ids first.
  options.top_p = 0.5;
  EXPECT_EQ(support(options, std::vector<float>(8, 2.0F)), "0 1 2 3 ");
  // Of what top_k left: 0.4 and 0.3 are 0.571 and 0.429.
  options.top_k = 2;
  options.top_p = 0.56;
  EXPECT_EQ(support(options, logits), "1 ");
}

TEST(Sampler, TopPIsJudgedBeforeTheTemperature) {
  SamplerOptions options = plain();
  options.temperature = 100;  // nearly flat
  options.top_p = 0.69;
  EXPECT_EQ(support(options, logits_of({0.1, 0.4, 0.05, 0.3, 0.15})), "1 3 ");
}

TEST(Sampler, MinPIsAShareOfTheBest) {
  const auto logits = logits_of({0.1, 0.4, 0.05, 0.3, 0.15});
  SamplerOptions options = plain();
  options.min_p = 0.3;  // of 0.4: 0.12
  EXPECT_EQ(support(options, logits), "1 3 4 ");
  options.temperature = 50;
  EXPECT_EQ(support(options, logits), "1 3 4 ");
  options.min_p = 1.0;
  EXPECT_EQ(support(options, {2, 3, 3, 1}), "1 2 ");
}

TEST(Sampler, RepetitionPenaltyDividesWhatIsPositiveAndMultipliesWhatIsNot) {
  SamplerOptions options{.temperature = 0, .repeat_penalty = 2};
  Sampler sampler(options, 3);
  sampler.accept(0);
  EXPECT_EQ(sampler.next(std::vector<float>{4, 2.1F, 1}), 1);     // 2 against 2.1
  EXPECT_EQ(sampler.next(std::vector<float>{4, 1.9F, 1}), 0);     // 2 against 1.9
  EXPECT_EQ(sampler.next(std::vector<float>{-1, -1.9F, -4}), 1);  // -2 against -1.9
  EXPECT_EQ(sampler.next(std::vector<float>{-1, -2.1F, -4}), 0);  // -2 against -2.1
  EXPECT_EQ(sampler.next(std::vector<float>{kNan, -kInf, -4}), 2);
}

TEST(Sampler, PresenceCountsOnceAndFrequencyEachTime) {
  Sampler presence({.temperature = 0, .presence_penalty = 1}, 2);
  Sampler frequency({.temperature = 0, .frequency_penalty = 1}, 2);
  for (int i = 0; i < 3; ++i) {
    presence.accept(0);
    frequency.accept(0);
  }
  EXPECT_EQ(presence.next(std::vector<float>{2, 1.1F}), 1);
  EXPECT_EQ(presence.next(std::vector<float>{2, 0.9F}), 0);
  EXPECT_EQ(frequency.next(std::vector<float>{4, 1.1F}), 1);
  EXPECT_EQ(frequency.next(std::vector<float>{4, 0.9F}), 0);
}

TEST(Sampler, PenaltiesForgetWhatLeftTheWindow) {
  SamplerOptions options{.temperature = 0, .presence_penalty = 10, .repeat_last_n = 2};
  Sampler sampler(options, 4);
  const std::vector<float> logits = {4, 3, 2, 1};
  std::string text;
  for (int i = 0; i < 7; ++i) {
    const std::int32_t id = sampler.next(logits);
    sampler.accept(id);
    text += std::to_string(id);
  }
  EXPECT_EQ(text, "0120120");
  options.repeat_last_n = 0;  // off
  Sampler off(options, 4);
  off.accept(0);
  EXPECT_EQ(off.next(logits), 0);
  options.repeat_last_n = -1;  // everything
  Sampler all(options, 4);
  all.accept(0);
  for (int i = 0; i < 1000; ++i) all.accept(1);
  EXPECT_EQ(all.next(logits), 2);
}

TEST(Sampler, PenaltiesStayFinite) {
  const float largest = std::numeric_limits<float>::max();
  Sampler sampler({.temperature = 0, .repeat_penalty = 1e6, .frequency_penalty = 1e6}, 2);
  sampler.accept(0);
  EXPECT_EQ(sampler.next(std::vector<float>{-largest, kNan}), 0);
  EXPECT_EQ(sampler.next(std::vector<float>{kInf, 1}), 0);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  const std::vector<double> p = {0.02, 0.3, 0.08, 0.25, 0.15, 0.1, 0.07, 0.03};
  // 7 degrees of freedom: above 24.3 once in 1000.
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    SamplerOptions options = plain();
    options.seed = seed;
    EXPECT_LT(chi_square(draws(options, logits_of(p), 20000), p), 24.3) << seed;
  }
}

TEST(Sampler, FrequenciesFollowTheTemperature) {
  const std::vector<double> p = {0.05, 0.3, 0.1, 0.25, 0.2, 0.1};
  for (const double temperature : {0.5, 2.0}) {
    std::vector<double> expected;
    double total = 0;
    for (const double value : p) total += expected.emplace_back(std::pow(value, 1 / temperature));
    for (double& value : expected) value /= total;
    SamplerOptions options = plain();
    options.temperature = temperature;
    EXPECT_LT(chi_square(draws(options, logits_of(p), 20000), expected), 20.5) << temperature;  // 5 degrees of freedom
    EXPECT_GT(chi_square(draws(options, logits_of(p), 20000), p), 200) << temperature;
  }
}

TEST(Sampler, FrequenciesFollowTheWholeChain) {
  // top_k leaves 1 3 4 0 (ties of 0.1: the lower id), top_p leaves 1 3 4 (0.75 of 0.85 >= 0.8), then the temperature.
  const std::vector<double> p = {0.1, 0.3, 0.05, 0.25, 0.2, 0.1};
  SamplerOptions options = plain();
  options.top_k = 4;
  options.top_p = 0.8;
  options.min_p = 0.1;
  options.temperature = 0.7;
  std::vector<double> expected = {0, std::pow(0.3, 1 / 0.7), 0, std::pow(0.25, 1 / 0.7), std::pow(0.2, 1 / 0.7), 0};
  const double total = expected[1] + expected[3] + expected[4];
  for (double& value : expected) value /= total;
  EXPECT_LT(chi_square(draws(options, logits_of(p), 20000), expected), 13.8);  // 2 degrees of freedom
}

TEST(Sampler, ExtremeTemperatures) {
  SamplerOptions options = plain();
  options.temperature = 1e-300;
  EXPECT_EQ(support(options, {1, 2, 1.9999999F, 2}), "1 3 ");
  options.temperature = 1e6;
  EXPECT_LT(chi_square(draws(options, {1, -50, 30, 2}, 20000), std::vector<double>(4, 0.25)), 16.3);
}

// A vocabulary as large as real ones, with logits that repeat: everything that selects must agree with a plain sort.
TEST(Sampler, SelectionFromALargeVocabularyEqualsASort) {
  constexpr std::size_t kVocab = 20000;
  Random random(11);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) logit = static_cast<float>(static_cast<int>(random.uniform() * 400)) * 0.02F;
  std::vector<std::int32_t> by_rank(kVocab);
  for (std::size_t i = 0; i < kVocab; ++i) by_rank[i] = static_cast<std::int32_t>(i);
  std::sort(by_rank.begin(), by_rank.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  });
  for (const std::int64_t top_k : {2, 7, 40, 999}) {
    // At this temperature what is left is drawn evenly: of few, all come up; of many, nothing past them.
    SamplerOptions options = plain();
    options.top_k = top_k;
    options.temperature = 1e6;
    Sampler sampler(options, kVocab);
    std::map<std::int32_t, int> seen;
    for (int i = 0; i < 30 * static_cast<int>(std::min<std::int64_t>(top_k, 20)); ++i) ++seen[sampler.next(logits)];
    for (const auto& [id, count] : seen) {
      const auto rank = std::find(by_rank.begin(), by_rank.end(), id) - by_rank.begin();
      EXPECT_LT(rank, top_k) << id;
    }
    if (top_k <= 7) {
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), top_k);
    }
  }
  // top_k equal to the vocabulary, half of it or none: the same draws where top_p cuts deeper than top_k.
  std::vector<std::vector<std::int32_t>> texts;
  for (const std::int64_t top_k : {std::int64_t{0}, std::int64_t{kVocab}}) {
    SamplerOptions options = plain();
    options.top_k = top_k;
    options.top_p = 0.7;
    Sampler sampler(options, kVocab);
    auto& text = texts.emplace_back();
    for (int i = 0; i < 20; ++i) text.push_back(sampler.next(logits));
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST(Sampler, SameSeedSameTextAndACopyContinues) {
  std::vector<float> logits(500);
  Random random(5);
  for (float& logit : logits) logit = static_cast<float>(8 * random.uniform());
  const auto text = [&](Sampler sampler, int n) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < n; ++i) {
      ids.push_back(sampler.next(logits));
      sampler.accept(ids.back());
    }
    return ids;
  };
  SamplerOptions options{.repeat_penalty = 1.1, .frequency_penalty = 0.1, .seed = 123};
  Sampler sampler(options, 500);
  const auto whole = text(sampler, 50);
  EXPECT_EQ(text(Sampler(options, 500), 50), whole);
  options.seed = 124;
  EXPECT_NE(text(Sampler(options, 500), 50), whole);
  for (int i = 0; i < 20; ++i) sampler.accept(sampler.next(logits));
  EXPECT_EQ(text(sampler, 30), std::vector<std::int32_t>(whole.begin() + 20, whole.end()));
}

// Ids written down once: the same on every platform and compiler.
TEST(Sampler, ATextThatMustNotChange) {
  std::vector<float> logits(64);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 64) * 0.0625F;
  Sampler sampler({.temperature = 0.9, .top_k = 30, .top_p = 0.9, .min_p = 0.02, .repeat_penalty = 1.2, .seed = 2024},
                  64);
  std::string text;
  for (int i = 0; i < 12; ++i) {
    const std::int32_t id = sampler.next(logits);
    sampler.accept(id);
    text += std::to_string(id) + " ";
  }
  EXPECT_EQ(text, "36 19 12 41 10 62 17 3 53 50 57 55 ");
}

TEST(Sampler, RefusesOptionsThatCannotBeInOneLine) {
  EXPECT_EQ(error_of({}), "");
  EXPECT_EQ(error_of({.temperature = -1}), "temperature is -1: it must be from 0 to 1000000");
  EXPECT_NE(error_of({.temperature = kNan}), "");
  EXPECT_NE(error_of({.temperature = kInf}), "");
  EXPECT_EQ(error_of({.top_k = -1}), "top_k is -1: it must be 0 (all) or more");
  EXPECT_EQ(error_of({.top_p = 1.5}), "top_p is 1.5: it must be from 0 to 1");
  EXPECT_NE(error_of({.top_p = kNan}), "");
  EXPECT_NE(error_of({.min_p = -0.1}), "");
  EXPECT_NE(error_of({.repeat_penalty = 0}), "");
  EXPECT_NE(error_of({.repeat_penalty = kInf}), "");
  EXPECT_NE(error_of({.presence_penalty = kNan}), "");
  EXPECT_NE(error_of({.frequency_penalty = -kInf}), "");
  EXPECT_NE(error_of({.repeat_last_n = -2}), "");
  EXPECT_NE(error_of({.repeat_last_n = std::int64_t{1} << 40}), "");
  EXPECT_THROW(Sampler({}, 0), Error);
  EXPECT_THROW(Sampler({.top_p = 2}, 10), Error);
  Sampler sampler({.repeat_penalty = 1.1}, 10);
  EXPECT_THROW(sampler.accept(10), Error);
  EXPECT_THROW(sampler.accept(-1), Error);
}

}  // namespace
}  // namespace conclave
