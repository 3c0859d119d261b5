// Generator: the right tokens, every reason to stop, and prompts that share their beginning with earlier ones.
#include <gtest/gtest.h>

#include <limits>

#include "conclave/generate.h"
#include "engine/random_model.h"

namespace conclave::testing {
namespace {

class GeneratorTest : public ::testing::Test {
 protected:
  static GenerateOptions greedy(std::int64_t n) { return {.sampling = {.temperature = 0}, .max_tokens = n}; }
  static GenerateOptions drawn(std::int64_t n, std::uint64_t seed) {
    return {.sampling = {.temperature = 2, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed}, .max_tokens = n};
  }
  Tokens fresh(const Tokens& prompt, const GenerateOptions& options, int threads = 2) const {
    Session session(file_.open("cpu", threads), {.context = 200});
    return Generator(session).generate(prompt, options).tokens;
  }

  RandomModel file_{"qwen3moe", DType::f32};
  Session session_{file_.open(), {.context = 200, .max_sequences = 2, .chunk = 16}};
  Tokens prompt_ = random_tokens(40);
};

TEST_F(GeneratorTest, GreedyIsTheLargestLogitEachTime) {
  Tokens want;
  const SequenceId by_hand = session_.create();
  auto logits = session_.extend(by_hand, prompt_);
  for (int i = 0; i < 12; ++i) {
    want.push_back(static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    logits = session_.extend(by_hand, {&want.back(), 1});
  }
  Generator generator(session_);
  Tokens seen;
  const Generation g = generator.generate(prompt_, greedy(12), {.token = [&](std::int32_t id) {
                                            seen.push_back(id);
                                            return true;
                                          }});
  EXPECT_EQ(g.tokens, want);
  EXPECT_EQ(seen, want);
  EXPECT_EQ(g.stop, StopReason::length);
  EXPECT_EQ(g.n_prompt, 40);
  EXPECT_EQ(g.n_cached, 0);
  EXPECT_EQ(g.n_computed, 40);
  EXPECT_EQ(g.n_steps, 11);  // the last one is not fed
  EXPECT_GT(g.prompt_speed(), 0);
  EXPECT_GT(g.step_speed(), 0);
}

TEST_F(GeneratorTest, TheSameSeedGivesTheSameTokensAtAnyNumberOfThreads) {
  const Tokens one = fresh(prompt_, drawn(50, 7), 1);
  EXPECT_EQ(one.size(), 50U);
  EXPECT_EQ(fresh(prompt_, drawn(50, 7), 2), one);
  EXPECT_EQ(fresh(prompt_, drawn(50, 7), 3), one);
  EXPECT_NE(fresh(prompt_, drawn(50, 8), 2), one);
}

TEST_F(GeneratorTest, WhatIsInTheCacheIsNotComputedAgainAndChangesNothing) {
  Generator generator(session_);
  const Tokens first = generator.generate(prompt_, drawn(20, 3)).tokens;
  Tokens longer = prompt_;  // the next turn of a chat
  longer.insert(longer.end(), first.begin(), first.end());
  longer.insert(longer.end(), {1, 2, 3});
  const Generation second = generator.generate(longer, drawn(20, 4));
  EXPECT_EQ(second.n_prompt, 63);
  EXPECT_EQ(second.n_cached, 59);  // the last token of the answer was never fed
  EXPECT_EQ(second.n_computed, 4);
  EXPECT_EQ(second.tokens, fresh(longer, drawn(20, 4)));

  const Generation again = generator.generate(longer, drawn(20, 4));  // the last token is computed in any case
  EXPECT_EQ(again.n_cached, 62);
  EXPECT_EQ(again.tokens, second.tokens);

  Tokens other = longer;
  other[10] = (other[10] + 1) % static_cast<std::int32_t>(kTinyVocab);
  const Generation third = generator.generate(other, drawn(20, 5));
  EXPECT_EQ(third.n_cached, 10);
  EXPECT_EQ(third.tokens, fresh(other, drawn(20, 5)));

  const Tokens one{5};
  EXPECT_EQ(generator.generate(one, drawn(5, 6)).tokens, fresh(one, drawn(5, 6)));
}

TEST_F(GeneratorTest, StopsAtAnEndTokenWhichIsNotPartOfTheAnswer) {
  const Tokens all = fresh(prompt_, drawn(50, 7));
  GenerateOptions options = drawn(50, 7);
  options.end_ids = {all[20]};
  const auto length = std::find(all.begin(), all.end(), all[20]) - all.begin();
  Generator generator(session_);
  const Generation g = generator.generate(prompt_, options);
  EXPECT_EQ(g.stop, StopReason::end);
  EXPECT_EQ(g.tokens, Tokens(all.begin(), all.begin() + length));
}

TEST_F(GeneratorTest, StopsWhereTheContextIsFull) {
  Generator generator(session_);
  const Generation g = generator.generate(prompt_, {.sampling = {.seed = 1}});
  EXPECT_EQ(g.stop, StopReason::context);
  EXPECT_EQ(g.tokens.size(), 161U);  // 200 are in the cache; the last one needs no place

  const Tokens full = random_tokens(200);
  EXPECT_EQ(generator.generate(full, {}).tokens.size(), 1U);
}

TEST_F(GeneratorTest, HooksStopIt) {
  Generator generator(session_);
  int left = 3;
  Generation g = generator.generate(prompt_, drawn(50, 7), {.token = [&](std::int32_t) { return --left > 0; }});
  EXPECT_EQ(g.stop, StopReason::hook);
  EXPECT_EQ(g.tokens.size(), 3U);

  Tokens other = random_tokens(64, 9);
  std::vector<std::int64_t> done;
  g = generator.generate(other, drawn(50, 7), {.prompt = [&](std::int64_t n, std::int64_t total) {
                           EXPECT_EQ(total, 64 - g.n_cached);
                           done.push_back(n);
                           return n < 32;
                         }});
  EXPECT_EQ(g.stop, StopReason::hook);
  EXPECT_EQ(g.tokens.size(), 0U);
  EXPECT_EQ(g.n_computed, 32);
  EXPECT_EQ(done, (std::vector<std::int64_t>{16, 32}));
  g = generator.generate(other, drawn(9, 7));  // goes on from there
  EXPECT_EQ(g.n_cached, 32);
  EXPECT_EQ(g.tokens, fresh(other, drawn(9, 7)));
}

TEST_F(GeneratorTest, NoTokensMayBeAskedFor) {
  Generator generator(session_);
  const Generation g = generator.generate(prompt_, greedy(0));
  EXPECT_EQ(g.stop, StopReason::length);
  EXPECT_TRUE(g.tokens.empty());
  EXPECT_EQ(g.n_computed, 40);
  EXPECT_EQ(g.step_speed(), 0);
}

TEST_F(GeneratorTest, RefusalsChangeNothing) {
  Generator generator(session_);
  const auto refuses = [&](const Tokens& prompt, const GenerateOptions& options, const std::string& part) {
    try {
      generator.generate(prompt, options);
      ADD_FAILURE() << "no error: " << part;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const Tokens want = fresh(prompt_, greedy(8));
  refuses({}, greedy(1), "no tokens");
  refuses(random_tokens(201), greedy(1), "the prompt has 201 tokens, the context holds 200");
  refuses({1, 20}, greedy(1), "20");
  refuses({1, -1}, greedy(1), "-1");
  refuses({1}, {.sampling = {.temperature = -1}}, "temperature");
  refuses({1}, {.sampling = {.top_p = std::numeric_limits<double>::quiet_NaN()}}, "top_p");
  EXPECT_EQ(generator.generate(prompt_, greedy(8)).tokens, want);
}

TEST_F(GeneratorTest, ASequenceIsGivenBack) {
  for (int i = 0; i < 5; ++i) Generator(session_).generate(prompt_, greedy(1));
  const Generator a(session_);
  const Generator b(session_);
  EXPECT_THROW(Generator{session_}, Error);
}

}  // namespace
}  // namespace conclave::testing
