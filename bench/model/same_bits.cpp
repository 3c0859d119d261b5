#include "bench/model/same_bits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/fail.h"
#include "bench/model/workload.h"

namespace conclave::bench {
namespace {

constexpr std::int64_t kTokens = 4;        // of each sequence
constexpr std::int64_t kMostCompared = 8;  // sequences: each is run alone, too

using Rows = std::vector<std::vector<float>>;  // [n_sequences * kTokens][n_vocab]

// Compares the rows of a step whose tokens start at `first` in each sequence.
class Comparison {
 public:
  Comparison(const Rows& expected, double allowed) : expected_(expected), allowed_(allowed) {}

  StepHooks hooks(std::int64_t first, std::string_view how) {
    return {.logits = [this, first, how](const LogitRow& row) {
      const std::size_t at = row.input * kTokens + static_cast<std::size_t>(first) + row.token;
      if (at >= expected_.size() || !wrong_.empty()) return;
      const std::string what = difference(row.logits, expected_[at], allowed_);
      if (what.empty()) return;
      wrong_ = fmt::format("token {} of sequence {}, {}: {}", static_cast<std::size_t>(first) + row.token, row.input,
                           how, what);
    }};
  }
  const std::string& wrong() const { return wrong_; }

 private:
  const Rows& expected_;
  double allowed_;
  std::string wrong_;
};

}  // namespace

AllowedDifference allowed_difference(std::string_view device) {
  if (device == "metal") return {.batch = 0.01, .phase = 0.01};
  if (device.starts_with("cuda")) return {.batch = 0, .phase = 0.1};  // a router may choose another expert
  return {};
}

std::string difference(std::span<const float> row, std::span<const float> expected, double allowed) {
  double off = 0;
  double length = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (!std::isfinite(row[i])) return fmt::format("logit {} is {}", i, row[i]);
    const double distance = static_cast<double>(row[i]) - static_cast<double>(expected[i]);
    off += distance * distance;
    length += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  if (allowed > 0) {
    const double relative = std::sqrt(off / std::max(length, 1e-30));
    return relative <= allowed ? std::string() : fmt::format("the logits are off by {:.3g} of their length", relative);
  }
  for (std::size_t i = 0; i < row.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(row[i]) == std::bit_cast<std::uint32_t>(expected[i])) continue;
    return fmt::format("logit {} is {}, and {} when the same tokens ran before", i, row[i], expected[i]);
  }
  return {};
}

std::string check_same_bits(const Model& model, std::int64_t batch, const SessionOptions& options) {
  SessionOptions sizes = options;
  sizes.context = kTokens;
  sizes.max_sequences = batch;
  sizes.logit_rows = 0;
  Session session(model, sizes);
  const std::int64_t compared = std::min(batch, kMostCompared);
  const TokenLists tokens = random_tokens(batch, kTokens, model.facts().n_vocab);

  Rows alone;
  const StepHooks keep{
      .logits = [&](const LogitRow& row) { alone.emplace_back(row.logits.begin(), row.logits.end()); }};
  for (std::int64_t i = 0; i < compared; ++i) {
    const Workload work{.kind = WorkKind::decode, .tokens = kTokens};
    run_workload(session, work, {tokens[static_cast<std::size_t>(i)]}, {.step = keep});
  }
  for (const std::vector<float>& row : alone) {
    if (const std::string wrong = difference(row, row); !wrong.empty()) return wrong;
  }

  const AllowedDifference allowed = allowed_difference(model.facts().device);
  Comparison comparison(alone, allowed.batch);
  std::vector<SequenceId> ids;
  std::vector<StepInput> inputs(static_cast<std::size_t>(batch));
  for (std::int64_t i = 0; i < batch; ++i) ids.push_back(session.create());
  for (std::int64_t step = 0; step < kTokens; ++step) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      inputs[i] = {.sequence = ids[i],
                   .tokens = std::span<const std::int32_t>(tokens[i]).subspan(static_cast<std::size_t>(step), 1)};
    }
    session.step(inputs, comparison.hooks(step, "in a batch"));
  }
  if (!comparison.wrong().empty()) return comparison.wrong();

  // As prompts: one token at a time, then all at once.
  Rows prompts;
  const StepHooks keep_prompt{
      .logits = [&](const LogitRow& row) { prompts.emplace_back(row.logits.begin(), row.logits.end()); }};
  for (std::size_t i = 0; i < static_cast<std::size_t>(compared); ++i) {
    session.cut(ids[i], 0);
    for (const std::int32_t& token : tokens[i]) {
      const StepInput one{.sequence = ids[i], .tokens = {&token, 1}, .kind = TokenKind::prompt};
      session.step({&one, 1}, keep_prompt);
    }
    session.cut(ids[i], 0);
    inputs[i] = {.sequence = ids[i], .tokens = tokens[i], .logits = LogitRows::all, .kind = TokenKind::prompt};
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (const std::string what = difference(prompts[i], alone[i], allowed.phase); !what.empty()) {
      return fmt::format("token {} of sequence {}, as a prompt: {}", i % kTokens, i / kTokens, what);
    }
  }
  Comparison at_once(prompts, allowed.batch);
  session.step(std::span(inputs).first(static_cast<std::size_t>(compared)), at_once.hooks(0, "all at once"));
  return at_once.wrong();
}

}  // namespace conclave::bench
