// Ten thousand steps of sequences that come, fork, are cut back and go at random leave memory where it was, and what
// comes out at the end is what a fresh sequence gives.
#include <gtest/gtest.h>

#include <map>

#include "base/memory.h"
#include "engine/loaded_model.h"
#include "engine/on_devices.h"
#include "engine/random_model.h"

namespace conclave::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // where memory that was given back is kept for a while, and everything is slow
#else
constexpr bool kSanitized = false;
#endif
constexpr int kSteps = kSanitized ? 1000 : 10000;
constexpr std::int64_t kSequences = 12;
constexpr std::int64_t kContext = 150;  // three pages

class Traffic {
 public:
  explicit Traffic(Session& session) : session_(session) {}

  void step() {
    come_and_go();
    std::vector<StepInput> inputs;
    for (auto& [sequence, text] : texts_) {
      if (text.fed == text.tokens.size()) continue;
      inputs.push_back({.sequence = sequence,
                        .tokens = std::span(text.tokens).subspan(text.fed),
                        .logits = rng_.chance(0.1) ? LogitRows::all : LogitRows::last});
    }
    std::map<SequenceId, std::int32_t> best;
    session_.step(inputs, {.best = [&](const BestRow& row) { best[inputs[row.input].sequence] = row.id; }});
    for (const auto& [sequence, id] : best) {
      Text& text = texts_.at(sequence);
      text.fed = text.tokens.size();
      ASSERT_EQ(session_.length(sequence), static_cast<std::int64_t>(text.fed));
      ASSERT_GE(id, 0);
      if (text.fed < kContext) text.tokens.push_back(id);
    }
    if (rng_.chance(0.002)) compare_one(best);
  }
  int n_compared() const { return n_compared_; }
  void end() {
    for (const auto& [sequence, text] : texts_) session_.drop(sequence);
    texts_.clear();
  }

 private:
  struct Text {
    Tokens tokens;
    std::size_t fed = 0;  // of them, in the cache
  };

  bool room() const { return texts_.size() < kSequences; }

  void come_and_go() {
    for (auto at = texts_.begin(); at != texts_.end();) {
      const bool ends = at->second.fed == kContext || rng_.chance(0.01);
      if (ends) session_.drop(at->first);
      at = ends ? texts_.erase(at) : std::next(at);
    }
    for (auto& [sequence, text] : texts_) {
      if (!rng_.chance(0.02) || text.fed == 0) continue;
      text.fed = static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(text.fed) - 1));
      session_.cut(sequence, static_cast<std::int64_t>(text.fed));
      text.tokens.resize(text.fed);
      text.tokens.push_back(random_id());
    }
    if (room() && !texts_.empty() && rng_.chance(0.05)) {
      const auto from = std::next(texts_.begin(), rng_.integer(0, static_cast<std::int64_t>(texts_.size()) - 1));
      Text text = from->second;
      text.tokens.resize(text.fed);
      text.tokens.push_back(random_id());  // another way than the one it comes from
      if (text.fed < kContext) texts_[session_.fork(from->first)] = std::move(text);
    }
    while (texts_.empty() || (room() && rng_.chance(0.2))) {
      Text text;
      const std::int64_t length = rng_.chance(0.1) ? rng_.integer(60, kContext) : rng_.integer(1, 20);
      for (std::int64_t i = 0; i < length; ++i) text.tokens.push_back(random_id());
      texts_[session_.create()] = std::move(text);
    }
  }

  // One of them again, from its first token on.
  void compare_one(const std::map<SequenceId, std::int32_t>& best) {
    if (best.empty() || !room()) return;
    ++n_compared_;
    const auto& [sequence, id] = *best.begin();
    const Text& text = texts_.at(sequence);
    const SequenceId fresh = session_.create();
    EXPECT_EQ(session_.extend_best(fresh, std::span(text.tokens).first(text.fed)), id);
    session_.drop(fresh);
  }

  std::int32_t random_id() { return static_cast<std::int32_t>(rng_.integer(0, kTinyVocab - 1)); }

  Session& session_;
  test::Rng rng_{11};
  std::map<SequenceId, Text> texts_;
  int n_compared_ = 0;
};

class EnduranceTest : public OnDevices {};
INSTANTIATE_TEST_SUITE_P(Devices, EnduranceTest, ::testing::Values("cpu", "cuda"));

TEST_P(EnduranceTest, MemoryStaysWhereItWas) {
  const RandomModel file("qwen3moe", DType::f32);
  const Model model = file.open(GetParam(), 1);
  Session session(model, {.context = kContext, .max_sequences = kSequences, .chunk = 64, .exact_prompts = true});
  const auto held = [&] {
    const auto memory = resident_memory();
    return memory ? memory->own : 0;
  };
  const auto free_on_gpu = [&] {
    return std::string(GetParam()) == "cuda" ? model.impl().device->available_bytes().value_or(0) : 0;
  };
  Traffic traffic(session);
  for (int i = 0; i < kSteps / 5; ++i) traffic.step();  // every program has been made
  const std::int64_t held_before = held();
  const std::int64_t free_before = free_on_gpu();
  for (int i = 0; i < kSteps && !HasFatalFailure(); ++i) traffic.step();
  if (!kSanitized) {
    EXPECT_LT(held() - held_before, std::int64_t{1} << 20);
  }
  EXPECT_LT(free_before - free_on_gpu(), std::int64_t{32} << 20);  // a rare program may have been made late
  EXPECT_GT(traffic.n_compared(), kSanitized ? 0 : 5);

  // Every page is there again: as many sequences as there may be, all of them full.
  traffic.end();
  const Tokens full = random_tokens(kContext);
  std::int32_t first = -1;
  for (std::int64_t i = 0; i < kSequences; ++i) {
    const std::int32_t best = session.extend_best(session.create(), full);
    if (i == 0) first = best;
    EXPECT_EQ(best, first);
  }
  EXPECT_THROW(session.create(), Error);
}

}  // namespace
}  // namespace conclave::testing
