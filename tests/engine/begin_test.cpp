// Steps that are begun before the last one is read: the same tokens as one step after the other.
#include <gtest/gtest.h>

#include "conclave/generate.h"
#include "engine/on_devices.h"
#include "engine/random_model.h"

namespace conclave::testing {
namespace {

class BeginTest : public OnDevices {
 protected:
  static constexpr SessionOptions kSizes{.context = 90, .max_sequences = 3, .chunk = 16, .logit_rows = 4};
  static constexpr int kSteps = 70;  // past the end of a page

  Session open(const SessionOptions& sizes = kSizes) const { return Session(file_.open(GetParam()), sizes); }

  // What greedy sequences that begin with these prompts say, one step after the other.
  std::vector<Tokens> in_turn(const std::vector<Tokens>& prompts) const {
    Session session = open();
    std::vector<Tokens> said;
    for (const Tokens& prompt : prompts) {
      const SequenceId sequence = session.create();
      Tokens& tokens = said.emplace_back(Tokens{session.extend_best(sequence, prompt)});
      while (tokens.size() <= kSteps) tokens.push_back(session.extend_best(sequence, {&tokens.back(), 1}));
    }
    return said;
  }

  RandomModel file_{"qwen2moe", DType::f32};
  const std::vector<Tokens> prompts_ = {random_tokens(3, 1), random_tokens(9, 2), random_tokens(1, 3)};
};

// Without Metal, whose kernels are interpreted where there is no such GPU: what it does here is what every device does.
INSTANTIATE_TEST_SUITE_P(Devices, BeginTest, ::testing::Values("ref", "cpu", "cuda"));

TEST_P(BeginTest, FollowsWhatTheStepBeforeFound) {
  const std::vector<Tokens> want = in_turn(prompts_);
  Session session = open();
  std::vector<NextToken> first;
  std::vector<NextToken> following;
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    const SequenceId sequence = session.create();
    ASSERT_EQ(session.extend_best(sequence, prompts_[i]), want[i][0]);
    first.push_back({sequence, want[i][0]});
    following.push_back({sequence, std::nullopt});
  }
  session.begin(first);
  for (std::size_t step = 1; step <= kSteps; ++step) {
    if (step < kSteps) session.begin(following);
    const auto ids = session.finish();
    ASSERT_EQ(ids.size(), want.size());
    for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], want[i][step]) << "sequence " << i << ", " << step;
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(session.length(first[i].sequence), static_cast<std::int64_t>(prompts_[i].size()) + kSteps);
  }
}

TEST_P(BeginTest, TakesGivenTokensToo) {
  const std::vector<Tokens> want = in_turn(prompts_);
  Session session = open();
  const SequenceId sequence = session.create();
  session.extend_best(sequence, prompts_[1]);
  const auto begin = [&](std::size_t step) {
    const NextToken token{sequence, want[1][step]};
    session.begin({&token, 1});
  };
  begin(0);
  for (std::size_t step = 1; step <= 20; ++step) {
    begin(step);
    EXPECT_EQ(session.finish()[0], want[1][step]);
  }
  EXPECT_EQ(session.finish()[0], want[1][21]);
}

TEST_P(BeginTest, NothingFollowsAStepWhoseTokensAreGone) {
  Session session = open();
  SequenceId sequence = session.create();
  const auto begin_first = [&] {
    const NextToken first{sequence, session.extend_best(sequence, prompts_[0])};
    session.begin({&first, 1});
    session.finish();
  };
  const auto follow = [&] {
    const NextToken next{sequence, std::nullopt};
    session.begin({&next, 1});
  };
  begin_first();
  session.cut(sequence, 2);
  EXPECT_THROW(follow(), Error);
  begin_first();
  session.drop(sequence);
  sequence = session.create();
  EXPECT_THROW(follow(), Error);
  EXPECT_EQ(session.length(sequence), 0);
  const SequenceId other = session.create();
  begin_first();
  session.drop(other);
  EXPECT_NO_THROW(follow());
}

TEST_P(BeginTest, WhatIsForgottenCanBeCutOff) {
  const std::vector<Tokens> want = in_turn(prompts_);
  Session session = open();
  const SequenceId sequence = session.create();
  session.extend_best(sequence, prompts_[0]);
  const NextToken first{sequence, want[0][0]};
  const NextToken following{sequence, std::nullopt};
  session.begin({&first, 1});
  session.begin({&following, 1});
  EXPECT_EQ(session.finish()[0], want[0][1]);
  session.forget();
  session.cut(sequence, 4);
  for (std::size_t step = 1; step <= 10; ++step) {
    EXPECT_EQ(session.extend_best(sequence, {&want[0][step], 1}), want[0][step + 1]);
  }
}

TEST_P(BeginTest, RefusesWhatCannotBeAndChangesNothing) {
  Session session = open();
  ASSERT_EQ(session.most_begun_sequences(), 4);
  const SequenceId a = session.create();
  const SequenceId b = session.create();
  const auto refused = [&](const std::vector<NextToken>& tokens, std::string_view why) {
    try {
      session.begin(tokens);
      ADD_FAILURE() << "not refused: " << why;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), why);
    }
    EXPECT_EQ(session.length(a), session.length(b));
  };
  const std::string_view nothing_before =
      "there is no step of these sequences that was begun before, for tokens to follow";
  refused({}, "a step without tokens cannot be begun");
  refused({{a, std::nullopt}}, nothing_before);
  refused({{a, 1}, {b, std::nullopt}}, "of one step, all tokens must be given or none");
  refused({{a, 1}, {a, 1}}, "sequence 0 is named twice in one step");
  refused({{a, -1}}, "token 0 is -1, must be 0 to 19");
  refused(std::vector<NextToken>(5, {a, 1}), "a step of 5 sequences cannot be begun: 4 are the most");
  EXPECT_THROW(session.finish(), Error);

  session.begin(std::vector<NextToken>{{a, 1}, {b, 2}});
  refused({{b, std::nullopt}, {a, std::nullopt}}, nothing_before);
  refused({{a, std::nullopt}}, nothing_before);
  session.begin(std::vector<NextToken>{{a, std::nullopt}, {b, std::nullopt}});
  refused({{a, std::nullopt}, {b, std::nullopt}}, "2 steps are under way: one must be finished first");
  EXPECT_THROW(session.extend_best(a, prompts_[0]), Error);
  session.finish();
  session.finish();
  session.extend_best(a, prompts_[2]);
  session.extend_best(b, prompts_[2]);
  refused({{a, std::nullopt}, {b, std::nullopt}}, nothing_before);  // other steps were between

  const Tokens rest = random_tokens(kSizes.context - session.length(a), 4);
  session.extend_best(a, rest);
  session.extend_best(b, rest);
  refused({{a, 1}, {b, 1}}, "the context is full: 90 tokens and 1 new ones are more than its 90");
}

// Where the device runs ahead, so does the generator.
TEST_P(BeginTest, AGeneratorSaysTheSameAndEndsWhereItIsTold) {
  const std::vector<Tokens> want = in_turn(prompts_);
  const auto start = [&](std::size_t n) {
    return Tokens(want[1].begin(), want[1].begin() + static_cast<std::ptrdiff_t>(n));
  };
  Session session = open();
  Generator generator(session);
  GenerateOptions greedy{.sampling = {.temperature = 0}, .max_tokens = 20};
  const Generation by_length = generator.generate(prompts_[1], greedy);
  EXPECT_EQ(by_length.tokens, start(20));
  EXPECT_EQ(by_length.n_steps, 19);

  Tokens longer = prompts_[1];
  longer.insert(longer.end(), want[1].begin(), want[1].begin() + 20);
  const Generation more = generator.generate(longer, greedy);
  EXPECT_EQ(more.n_cached, static_cast<std::int64_t>(longer.size()) - 1);
  EXPECT_EQ(more.tokens, Tokens(want[1].begin() + 20, want[1].begin() + 40));

  std::size_t heard = 0;
  const Generation stopped =
      generator.generate(prompts_[1], greedy, {.token = [&](std::int32_t) { return ++heard < 7; }});
  EXPECT_EQ(stopped.tokens, start(7));
  EXPECT_EQ(stopped.stop, StopReason::hook);

  greedy.max_tokens.reset();
  const Generation full = generator.generate(prompts_[1], greedy);
  EXPECT_EQ(full.stop, StopReason::context);
  EXPECT_EQ(full.tokens.size(), static_cast<std::size_t>(kSizes.context) - prompts_[1].size() + 1);
  EXPECT_EQ(Tokens(full.tokens.begin(), full.tokens.begin() + kSteps), start(kSteps));

  const auto end = std::find(want[1].begin() + 5, want[1].end(), want[1][5]);
  greedy.end_ids = {*end};
  const auto first = std::find(want[1].begin(), want[1].end(), *end);
  EXPECT_EQ(generator.generate(prompts_[1], greedy).tokens, Tokens(want[1].begin(), first));
}

}  // namespace
}  // namespace conclave::testing
