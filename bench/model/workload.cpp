#include "bench/model/workload.h"

#include <chrono>
#include <ctime>

#include "support/rng.h"

namespace conclave::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Sequences that go when the run ends, also by an error.
class Sequences {
 public:
  Sequences(Session& session, std::int64_t count) : session_(session) {
    for (std::int64_t i = 0; i < count; ++i) ids_.push_back(session.create());
  }
  ~Sequences() {
    for (const SequenceId id : ids_) session_.drop(id);
  }
  Sequences(const Sequences&) = delete;
  Sequences& operator=(const Sequences&) = delete;
  SequenceId operator[](std::size_t i) const { return ids_[i]; }

 private:
  Session& session_;
  std::vector<SequenceId> ids_;
};

// What the clock shows: of the wall, and of all cores together.
class Clocks {
 public:
  void start() {
    cpu_start_ = std::clock();
    start_ = Clock::now();
  }
  void stop(RunTime& time) const {
    time.seconds += std::chrono::duration<double>(Clock::now() - start_).count();
    time.cpu_seconds += static_cast<double>(std::clock() - cpu_start_) / CLOCKS_PER_SEC;
  }

 private:
  std::clock_t cpu_start_ = 0;
  Clock::time_point start_;
};

bool only_best_wanted(const StepHooks& hooks) {
  return hooks.best && !hooks.logits && !hooks.top && !hooks.routing && !hooks.progress && !hooks.profile;
}

// Single tokens as a greedy generator has them: a step is begun, then the one before it is read.
RunTime run_ahead(Session& session, std::int64_t steps, const std::vector<StepInput>& all, const RunHooks& hooks) {
  std::vector<NextToken> next(all.size());
  const auto begin = [&](std::int64_t step) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      next[i] = {all[i].sequence, all[i].tokens[static_cast<std::size_t>(step)]};
    }
    session.begin(next);
  };
  RunTime time;
  Clocks clocks;
  clocks.start();
  begin(0);
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step + 1 < steps) begin(step + 1);
    const std::span<const std::int32_t> best = session.finish();
    for (std::size_t i = 0; i < best.size(); ++i) hooks.step.best({.input = i, .token = 0, .id = best[i]});
  }
  clocks.stop(time);
  return time;
}

// A step, what comes out of it, then the next one.
RunTime run_in_turn(Session& session, std::int64_t steps, const std::vector<StepInput>& all, const RunHooks& hooks) {
  std::vector<StepInput> inputs = all;
  RunTime time;
  Clocks clocks;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::size_t per_step = all[i].tokens.size() / static_cast<std::size_t>(steps);
      inputs[i].tokens = all[i].tokens.subspan(static_cast<std::size_t>(step) * per_step, per_step);
    }
    if (hooks.between) hooks.between(time.seconds);
    if (hooks.starting) hooks.starting(step);
    clocks.start();
    session.step(inputs, hooks.step);
    clocks.stop(time);
  }
  return time;
}

}  // namespace

TokenLists random_tokens(std::int64_t n_sequences, std::int64_t n_tokens, std::int64_t n_vocab) {
  TokenLists lists;
  for (std::int64_t i = 0; i < n_sequences; ++i) {
    test::Rng rng(static_cast<std::uint64_t>(i) + 1);
    std::vector<std::int32_t>& list = lists.emplace_back(static_cast<std::size_t>(n_tokens));
    for (std::int32_t& id : list) id = static_cast<std::int32_t>(rng.integer(0, n_vocab - 1));
  }
  return lists;
}

RunTime run_workload(Session& session, const Workload& work, const TokenLists& tokens, const RunHooks& hooks) {
  const Sequences sequences(session, work.batch);
  std::vector<StepInput> all;
  for (std::size_t i = 0; i < static_cast<std::size_t>(work.batch); ++i) {
    const auto list = std::span<const std::int32_t>(tokens[i]).first(static_cast<std::size_t>(work.context()));
    const auto depth = static_cast<std::size_t>(work.depth);
    if (depth > 0) {
      const StepInput before{.sequence = sequences[i], .tokens = list.first(depth), .kind = TokenKind::prompt};
      session.step({&before, 1}, {.best = [](const BestRow&) {}});  // so that it has ended when the clock starts
    }
    all.push_back({.sequence = sequences[i],
                   .tokens = list.subspan(depth),
                   .kind = work.kind == WorkKind::prefill ? TokenKind::prompt : TokenKind::generated});
  }
  const bool ahead = work.kind == WorkKind::decode && only_best_wanted(hooks.step) && session.runs_ahead() &&
                     work.batch <= session.most_begun_sequences();
  const RunTime time = (ahead ? run_ahead : run_in_turn)(session, work.steps(), all, hooks);
  if (hooks.check.logits) {
    for (StepInput& input : all) {
      session.cut(input.sequence, session.length(input.sequence) - 1);
      input.tokens = input.tokens.last(1);
    }
    session.step(all, hooks.check);
  }
  return time;
}

}  // namespace conclave::bench
