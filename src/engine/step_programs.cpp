#include "engine/step_programs.h"

#include <algorithm>
#include <bit>

namespace conclave {

const StepPrograms::Step& StepPrograms::step(std::int64_t n_tokens) {
  const auto next_power = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n_tokens)));
  const std::int64_t bucket = std::min(next_power, largest_.n_tokens);
  for (const Step& step : steps_) {
    if (step.size.n_tokens == bucket) return step;
  }
  const StepSize size{.n_tokens = bucket, .n_out = std::min(bucket, largest_.n_out)};
  steps_.push_back({.size = size, .run = device_.compile(record_step(model_, size))});
  return steps_.back();
}

Executable& StepPrograms::outputs() {
  if (outputs_ == nullptr) outputs_ = device_.compile(record_outputs(model_, largest_));
  return *outputs_;
}

}  // namespace conclave
