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
  const std::int64_t steps = work.steps();
  const auto per_step = static_cast<std::size_t>(work.tokens / steps);
  std::vector<StepInput> inputs(static_cast<std::size_t>(work.batch));
  const auto depth = static_cast<std::size_t>(work.depth);
  for (std::size_t i = 0; i < inputs.size() && depth > 0; ++i) {
    const StepInput before{.sequence = sequences[i],
                           .tokens = std::span<const std::int32_t>(tokens[i]).first(depth),
                           .kind = TokenKind::prompt};
    session.step({&before, 1}, {.best = [](const BestRow&) {}});  // so that it has ended when the clock starts
  }
  RunTime time;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::span<const std::int32_t> all(tokens[i]);
      inputs[i] = {.sequence = sequences[i],
                   .tokens = all.subspan(depth + static_cast<std::size_t>(step) * per_step, per_step),
                   .kind = work.kind == WorkKind::prefill ? TokenKind::prompt : TokenKind::generated};
    }
    if (hooks.between) hooks.between(time.seconds);
    if (hooks.starting) hooks.starting(step);
    const std::clock_t cpu_start = std::clock();
    const auto start = Clock::now();
    session.step(inputs, hooks.step);
    time.seconds += std::chrono::duration<double>(Clock::now() - start).count();
    time.cpu_seconds += static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  }
  if (hooks.check.logits) {
    for (StepInput& input : inputs) {
      session.cut(input.sequence, session.length(input.sequence) - 1);
      input.tokens = input.tokens.last(1);
    }
    session.step(inputs, hooks.check);
  }
  return time;
}

}  // namespace conclave::bench
