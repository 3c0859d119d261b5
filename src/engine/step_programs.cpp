#include "engine/step_programs.h"

#include <algorithm>
#include <bit>

namespace conclave {

namespace {

// Generated tokens of texts up to so long have programs of their own.
constexpr std::int64_t kShortContext = 2048;

}  // namespace

const StepPrograms::Step& StepPrograms::step(const StepSize& wanted) {
  const auto next_power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(wanted.n_tokens)));
  StepSize size = wanted;
  size.n_tokens = std::min(next_power, largest_.n_tokens);
  size.n_out = wanted.n_out <= 1 ? 1 : std::min(size.n_tokens, largest_.n_out);
  const bool is_short = wanted.phase == Phase::decode && wanted.context <= kShortContext;
  size.context = is_short ? std::min(kShortContext, largest_.context) : largest_.context;
  for (const Step& step : steps_) {
    if (step.size == size) return step;
  }
  steps_.push_back({.size = size, .run = device_.compile(record_step(model_, size))});
  return steps_.back();
}

Executable& StepPrograms::outputs(Phase phase) {
  std::unique_ptr<Executable>& made = outputs_[phase == Phase::prefill ? 1 : 0];
  if (made == nullptr) {
    StepSize size = largest_;
    size.phase = phase;
    made = device_.compile(record_outputs(model_, size));
  }
  return *made;
}

const StepPrograms::Top& StepPrograms::top(std::int64_t n_rows) {
  Top& made = top_[n_rows > 1 ? 1 : 0];
  if (made.run == nullptr) {
    made.n_rows = n_rows > 1 ? largest_.n_out : 1;
    made.run = device_.compile(record_top(model_, made.n_rows));
  }
  return made;
}

}  // namespace conclave
