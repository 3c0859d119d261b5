#include <algorithm>
#include <chrono>
#include <optional>

#include "base/fail.h"
#include "conclave/generate.h"
#include "sample/sampler.h"

namespace conclave {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double speed(std::int64_t count, double seconds) {
  return count > 0 && seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

void check_prompt(std::span<const std::int32_t> prompt, const Session& session) {
  if (prompt.empty()) fail(ErrorCode::invalid_argument, "the prompt has no tokens");
  if (static_cast<std::int64_t>(prompt.size()) > session.context()) {
    fail(ErrorCode::invalid_argument, "the prompt has {} tokens, the context holds {}", prompt.size(),
         session.context());
  }
}

// When it goes, a sequence has only the tokens it is known to have: what was computed ahead is taken off.
class Ahead {
 public:
  Ahead(Session& session, SequenceId sequence, const std::vector<std::int32_t>& known)
      : session_(session), sequence_(sequence), known_(known) {}
  ~Ahead() {
    session_.forget();
    session_.cut(sequence_, static_cast<std::int64_t>(known_.size()));
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

 private:
  Session& session_;
  SequenceId sequence_;
  const std::vector<std::int32_t>& known_;
};

}  // namespace

double Generation::prompt_speed() const {
  return speed(n_computed, prompt_seconds);
}
double Generation::step_speed() const {
  return speed(n_steps, step_seconds);
}

Generator::Generator(Session& session) : session_(session), sequence_(session.create()) {}

Generator::~Generator() {
  session_.drop(sequence_);
}

// What comes after the last of its tokens; nothing where a hook stopped before it. (Where it throws, the sequence may have
// more tokens than cached_ knows of: the next prompt cuts them off.)
Generator::Outcome Generator::feed(const StepInput& input, Wanted wanted, const GenerateHooks& hooks, bool& stopped) {
  Outcome outcome;
  StepHooks step;
  switch (wanted) {
    case Wanted::best:
      step.best = [&](const BestRow& row) { outcome.best = row.id; };
      break;
    case Wanted::top:
      step.top = [&](const TopRow& row) {
        outcome.n_top = row.ids.size();
        std::copy(row.ids.begin(), row.ids.end(), outcome.top_ids.begin());
        std::copy(row.logits.begin(), row.logits.end(), outcome.top_logits.begin());
      };
      break;
    case Wanted::logits:
      step.logits = [&](const LogitRow& row) { outcome.logits = row.logits; };
      break;
  }
  if (hooks.prompt) {
    step.progress = [&](std::int64_t done, std::int64_t total) {
      stopped = !hooks.prompt(done, total);
      return !stopped;
    };
  }
  session_.step({&input, 1}, step);
  const auto fed = static_cast<std::size_t>(session_.length(sequence_)) - cached_.size();
  cached_.insert(cached_.end(), input.tokens.begin(), input.tokens.begin() + static_cast<std::ptrdiff_t>(fed));
  return outcome;
}

// The best token after `id`, which was chosen. `one_more`: the token after that one is begun, since it will be wanted.
std::int32_t Generator::feed_ahead(std::int32_t id, bool one_more) {
  const NextToken given{sequence_, id};
  const NextToken following{sequence_, std::nullopt};
  const auto n_known = static_cast<std::int64_t>(cached_.size());
  if (session_.length(sequence_) == n_known) session_.begin({&given, 1});  // else it is under way
  cached_.push_back(id);
  if (one_more) session_.begin({&following, 1});
  return session_.finish()[0];
}

Generation Generator::generate(std::span<const std::int32_t> prompt, const GenerateOptions& options,
                               const GenerateHooks& hooks) {
  check_prompt(prompt, session_);
  Sampler sampler(options.sampling, session_.model().facts().n_vocab);
  for (const std::int32_t id : prompt) sampler.accept(id);

  // The last token is computed in any case: its logits are wanted.
  const auto same = std::mismatch(prompt.begin(), prompt.end() - 1, cached_.begin(), cached_.end()).first;
  Generation out{.n_prompt = static_cast<std::int64_t>(prompt.size()), .n_cached = same - prompt.begin()};
  session_.cut(sequence_, out.n_cached);
  cached_.resize(static_cast<std::size_t>(out.n_cached));

  const auto stop = [&](StopReason reason) {
    out.stop = reason;
    return out;
  };
  bool stopped = false;
  const Stopwatch prompt_time;
  StepInput input{.sequence = sequence_,
                  .tokens = prompt.subspan(static_cast<std::size_t>(out.n_cached)),
                  .kind = TokenKind::prompt};
  const std::int64_t needed = sampler.needs_best();
  const bool from_top = needed > 0 && needed <= kTopLogits && !session_.logits_are_near();
  const Wanted wanted = sampler.takes_best() ? Wanted::best : from_top ? Wanted::top : Wanted::logits;
  const auto choose = [&](const Outcome& outcome) {
    if (wanted == Wanted::best) return require_token(outcome.best);
    if (wanted == Wanted::logits) return sampler.next(outcome.logits);
    return sampler.next_of_best(std::span(outcome.top_ids).first(outcome.n_top),
                                std::span(outcome.top_logits).first(outcome.n_top));
  };
  Outcome outcome = feed(input, wanted, hooks, stopped);
  out.prompt_seconds = prompt_time.seconds();
  out.n_computed = session_.length(sequence_) - out.n_cached;
  if (stopped) return stop(StopReason::hook);
  if (options.max_tokens && *options.max_tokens <= 0) return stop(StopReason::length);

  const bool ahead = wanted == Wanted::best && session_.runs_ahead();
  std::optional<Ahead> ahead_of_what_is_known;
  if (ahead) ahead_of_what_is_known.emplace(session_, sequence_, cached_);
  const Stopwatch step_time;
  for (;;) {
    const std::int32_t id = choose(outcome);
    if (std::find(options.end_ids.begin(), options.end_ids.end(), id) != options.end_ids.end()) {
      return stop(StopReason::end);
    }
    sampler.accept(id);
    out.tokens.push_back(id);
    if (hooks.token && !hooks.token(id)) return stop(StopReason::hook);
    const auto n_tokens = static_cast<std::int64_t>(out.tokens.size());
    const auto n_known = static_cast<std::int64_t>(cached_.size());
    if (n_tokens == options.max_tokens) return stop(StopReason::length);
    if (n_known == session_.context()) return stop(StopReason::context);
    if (ahead) {
      outcome.best = feed_ahead(id, n_tokens + 1 != options.max_tokens && n_known + 1 < session_.context());
    } else {
      input.tokens = {&id, 1};
      input.kind = TokenKind::generated;
      outcome = feed(input, wanted, {}, stopped);
    }
    ++out.n_steps;
    out.step_seconds = step_time.seconds();
  }
}

}  // namespace conclave
