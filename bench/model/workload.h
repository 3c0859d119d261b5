// What is timed: tokens drawn at random from the vocabulary, run through a model from an empty context, or from one of
// `depth` tokens, which are not timed.
//
//   prefill   one sequence gets all its tokens in one step; what the last one leads to comes out
//   decode    `batch` sequences, each with tokens of its own, get one token in each step; what each leads to comes out
//
// Tokens are the same in every run: sequence i has the same ones in every batch. What a token is does not depend on the
// logits before it, so that a run can be repeated exactly and its routing is known before it is timed. Where nothing but
// the best token of each step is wanted and the device runs ahead, steps are begun as a greedy generator begins them: each
// before the one before it is read (Session::begin).
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "conclave/session.h"

namespace conclave::bench {

enum class WorkKind { prefill, decode };

constexpr std::string_view name(WorkKind kind) {
  return kind == WorkKind::prefill ? "prefill" : "decode";
}

struct Workload {
  WorkKind kind = WorkKind::decode;
  std::int64_t tokens = 0;  // of each sequence; at least 1
  std::int64_t batch = 1;   // sequences; of a prefill, 1
  std::int64_t depth = 0;   // tokens that each sequence has before

  std::int64_t total() const { return tokens * batch; }
  std::int64_t context() const { return depth + tokens; }
  std::int64_t steps() const { return kind == WorkKind::prefill ? 1 : tokens; }
};

using TokenLists = std::vector<std::vector<std::int32_t>>;  // [n_sequences][n_tokens]

TokenLists random_tokens(std::int64_t n_sequences, std::int64_t n_tokens, std::int64_t n_vocab);

// What happens around a run; each may be empty.
struct RunHooks {
  StepHooks step;   // of every step
  StepHooks check;  // of the last token of each sequence, which runs once more, the clock stopped, where there are any
  // Before each step, the clock stopped: what it shows so far, and its number. Not where steps are begun ahead.
  std::function<void(double seconds)> between;
  std::function<void(std::int64_t step)> starting;
};

struct RunTime {
  double seconds = 0;
  double cpu_seconds = 0;  // of all cores, in that time: what the host had to do
};

// Runs the workload in sequences that are made for it and dropped; gives what its steps took. `tokens`: work.context()
// of each sequence.
RunTime run_workload(Session& session, const Workload& work, const TokenLists& tokens, const RunHooks& hooks);

}  // namespace conclave::bench
