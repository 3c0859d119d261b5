#include "engine/begun_steps.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace conclave {

BegunSteps::BegunSteps(const Parts& parts, std::int64_t most_sequences)
    : parts_(parts), most_sequences_(most_sequences), rows_(static_cast<std::size_t>(most_sequences)) {
  std::iota(rows_.begin(), rows_.end(), 0);
  followed_.reserve(rows_.size());
  const Tensor best = parts.workspace.best(most_sequences);
  for (Begun& begun : begun_) {
    begun.ids = parts.device.fetch(*best.buffer, best.byte_offset, most_sequences * std::int64_t{sizeof(std::int32_t)});
  }
}

// Whether the tokens are those of the step before.
bool BegunSteps::check(std::span<const NextToken> tokens) {
  if (n_under_way_ == begun_.size()) {
    fail(ErrorCode::invalid_argument, "{} steps are under way: one must be finished first", n_under_way_);
  }
  if (tokens.empty()) fail(ErrorCode::invalid_argument, "a step without tokens cannot be begun");
  if (static_cast<std::int64_t>(tokens.size()) > most_sequences_) {
    fail(ErrorCode::invalid_argument, "a step of {} sequences cannot be begun: {} are the most", tokens.size(),
         most_sequences_);
  }
  const bool follows = !tokens[0].id;
  parts_.check.start();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].id.has_value() == follows) {
      fail(ErrorCode::invalid_argument, "of one step, all tokens must be given or none");
    }
    if (!follows) parts_.check.token(i, *tokens[i].id);
    parts_.check.sequence(tokens[i].sequence, 1);
  }
  const auto same = [](const NextToken& token, SequenceId sequence) { return token.sequence == sequence; };
  if (follows && !std::equal(tokens.begin(), tokens.end(), followed_.begin(), followed_.end(), same)) {
    fail(ErrorCode::invalid_argument,
         "there is no step of these sequences that was begun before, for tokens to follow");
  }
  return follows;
}

void BegunSteps::begin(std::span<const NextToken> tokens) {
  const bool follows = check(tokens);
  parts_.inputs.clear();
  std::int64_t longest = 0;
  for (const NextToken& token : tokens) {
    const std::int64_t length = parts_.kv.length(token.sequence);
    longest = std::max(longest, length + 1);
    parts_.kv.make_room(token.sequence, 1);
    parts_.inputs.set_length(token.sequence, length + 1);
    parts_.inputs.add(token.id.value_or(0), token.sequence, length);
  }
  parts_.kv.upload_pages();
  parts_.inputs.set_out_rows(std::span(rows_).first(tokens.size()));
  const auto n = static_cast<std::int64_t>(tokens.size());
  const StepPrograms::Step& step =
      parts_.programs.step({.n_tokens = n, .n_out = n, .context = longest, .follows = follows});
  parts_.inputs.upload(step.size.n_tokens);
  step.run->run();

  Begun& begun = begun_[(oldest_ + n_under_way_) % begun_.size()];
  begun.ids->begin();
  begun.n_sequences = tokens.size();
  ++n_under_way_;
  followed_.clear();
  for (const NextToken& token : tokens) {
    parts_.kv.advance(token.sequence, 1);
    followed_.push_back(token.sequence);
  }
}

std::span<const std::int32_t> BegunSteps::finish() {
  if (n_under_way_ == 0) fail(ErrorCode::invalid_argument, "no step is under way");
  Begun& begun = begun_[oldest_];
  oldest_ = (oldest_ + 1) % begun_.size();
  --n_under_way_;
  const std::span<const std::byte> bytes = begun.ids->wait();
  return {reinterpret_cast<const std::int32_t*>(bytes.data()), begun.n_sequences};
}

void BegunSteps::interrupt(SequenceId sequence) {
  if (std::find(followed_.begin(), followed_.end(), sequence) != followed_.end()) interrupt();
}

void BegunSteps::forget() {
  n_under_way_ = 0;
  interrupt();
}

}  // namespace conclave
