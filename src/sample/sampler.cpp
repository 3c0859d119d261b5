#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/fail.h"
#include "base/float_order.h"
#include "sample/sample_exp.h"

namespace conclave {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void require_range(std::string_view name, double value, double low, double high) {
  if (value >= low && value <= high) return;  // false for NaN
  fail(ErrorCode::invalid_argument, "{} is {}: it must be from {} to {}", name, value, low, high);
}

// As the header takes them: NaN never, plus infinity as a number.
float usable(float logit) {
  if (!(logit > kMinusInfinity)) return kMinusInfinity;
  return std::min(logit, kLargest);
}

float penalize_one(float logit, std::int32_t count, const SamplerOptions& options) {
  double value = logit;
  value = value > 0 ? value / options.repeat_penalty : value * options.repeat_penalty;
  value -= count * options.frequency_penalty + options.presence_penalty;
  return static_cast<float>(std::clamp<double>(value, -kLargest, kLargest));
}

// Smaller for a better rank: the logit's bits put into order, complemented, then the place, which is in order of ids.
std::uint64_t rank_key(float logit, std::size_t place) {
  return static_cast<std::uint64_t>(~ascending_bits(logit)) << 32 | place;
}

// take(i) for every logit above the threshold, which may rise meanwhile, in order of ids, until it says no. Most of a
// vocabulary is passed over in strides.
template <class Take>
void for_each_above(std::span<const float> logits, const float& threshold, const Take& take) {
  constexpr std::size_t kStride = 64;
  for (std::size_t i = 0; i < logits.size();) {
    const std::size_t end = std::min(logits.size(), i + kStride);
    if (end - i == kStride) {
      const float least = threshold;
      unsigned above = 0;
      for (std::size_t j = 0; j < kStride; ++j) above |= logits[i + j] > least ? 1U : 0U;
      if (above == 0) i = end;
    }
    for (; i < end; ++i) {
      if (logits[i] > threshold && !take(i)) return;
    }
  }
}

// How many candidates are kept apart while the k best of n are looked for.
std::size_t room_for(std::int64_t top_k, std::int64_t n_vocab) {
  const bool all = top_k == 0 || top_k >= n_vocab / 2;
  return static_cast<std::size_t>(all ? n_vocab : 2 * top_k);
}

}  // namespace

void validate(const SamplerOptions& o) {
  const double most = SamplerOptions::kMaxPenalty;
  require_range("temperature", o.temperature, 0, SamplerOptions::kMaxTemperature);
  if (o.top_k < 0) fail(ErrorCode::invalid_argument, "top_k is {}: it must be 0 (all) or more", o.top_k);
  require_range("top_p", o.top_p, 0, 1);
  require_range("min_p", o.min_p, 0, 1);
  require_range("repeat_penalty", o.repeat_penalty, 1 / most, most);
  require_range("presence_penalty", o.presence_penalty, -most, most);
  require_range("frequency_penalty", o.frequency_penalty, -most, most);
  if (o.repeat_last_n < -1 || o.repeat_last_n > SamplerOptions::kMaxRepeatLastN) {
    fail(ErrorCode::invalid_argument, "repeat_last_n is {}: it must be from 0 to {}, or -1 for everything",
         o.repeat_last_n, SamplerOptions::kMaxRepeatLastN);
  }
}

std::int32_t require_token(std::int32_t id) {
  if (id < 0) fail(ErrorCode::invalid_argument, "no token can be chosen: every logit is NaN or minus infinity");
  return id;
}

Sampler::Sampler(const SamplerOptions& options, std::int64_t n_vocab)
    : options_((validate(options), options)),
      random_(options.seed),
      penalties_(options.repeat_last_n != 0 && (options.repeat_penalty != 1.0 || options.presence_penalty != 0.0 ||
                                                options.frequency_penalty != 0.0)),
      n_vocab_(n_vocab) {
  if (n_vocab < 1 || n_vocab > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorCode::invalid_argument, "a vocabulary of {} tokens cannot be sampled from", n_vocab);
  }
  if (penalties_) {
    penalized_.resize(static_cast<std::size_t>(n_vocab));
    counts_.resize(static_cast<std::size_t>(n_vocab));
    if (options.repeat_last_n > 0) window_.resize(static_cast<std::size_t>(options.repeat_last_n), -1);
  }
  if (options.temperature > 0) candidates_.resize(room_for(options.top_k, n_vocab));
  if (options.top_p < 1) ranks_.resize(candidates_.size());
}

void Sampler::accept(std::int32_t id) {
  if (id < 0 || id >= n_vocab_) {
    fail(ErrorCode::invalid_argument, "token {} is not in the vocabulary: 0 to {}", id, n_vocab_ - 1);
  }
  if (!penalties_) return;
  ++counts_[static_cast<std::size_t>(id)];
  if (window_.empty()) return;
  const std::int32_t forgotten = window_[oldest_];
  if (forgotten >= 0) --counts_[static_cast<std::size_t>(forgotten)];
  window_[oldest_] = id;
  oldest_ = oldest_ + 1 == window_.size() ? 0 : oldest_ + 1;
}

std::int32_t Sampler::next(std::span<const float> logits) {
  CONCLAVE_CHECK(static_cast<std::int64_t>(logits.size()) == n_vocab_, fmt::format("{} logits", logits.size()));
  if (penalties_) {
    penalize(logits);
    logits = penalized_;
  }
  const bool greedy = options_.temperature == 0;
  std::int32_t best = -1;
  float largest = kMinusInfinity;
  for_each_above(logits, largest, [&](std::size_t i) {
    best = static_cast<std::int32_t>(i);
    largest = logits[i];
    return greedy || largest < kLargest;  // where infinity is a number, nothing ranks before the first of these
  });
  best_ = usable(largest);
  require_token(best);
  if (greedy || options_.top_k == 1) return best;

  collect(logits);
  return choose();
}

std::int32_t Sampler::next_of_best(std::span<const std::int32_t> ids, std::span<const float> logits) {
  const auto needed = static_cast<std::size_t>(needs_best());
  CONCLAVE_CHECK(needed > 0 && ids.size() == logits.size(), "not to be chosen from the best alone");
  n_candidates_ = 0;
  const auto is_one = [&](std::size_t i) { return i < std::min(needed, ids.size()) && ids[i] >= 0; };
  require_token(is_one(0) ? ids[0] : -1);
  if (needed == 1) return ids[0];
  best_ = usable(logits[0]);
  for (std::size_t i = 0; is_one(i); ++i) candidates_[n_candidates_++] = {usable(logits[i]), ids[i], 0};
  sort_by_id();
  return choose();
}

// From the candidates.
std::int32_t Sampler::choose() {
  if (options_.top_p < 1) keep_top_p();
  if (options_.min_p > 0) keep_min_p();
  return draw();
}

void Sampler::penalize(std::span<const float> logits) {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const float logit = usable(logits[i]);
    const bool changed = counts_[i] > 0 && logit > kMinusInfinity;
    penalized_[i] = changed ? penalize_one(logit, counts_[i], options_) : logit;
  }
}

// The usable tokens, the top_k of them where that is asked for, in order of ids. Candidates are taken in until there is
// no more room; then the k best so far stay, and the worst of them says what a token must beat from now on. Each such
// cut of 2k candidates pays for k tokens: linear in n_vocab, and for a small k little more than one look at each logit.
void Sampler::collect(std::span<const float> logits) {
  const auto begin = candidates_.begin();
  const auto k = static_cast<std::ptrdiff_t>(options_.top_k);
  const auto cut = [&] {
    std::nth_element(begin, begin + (k - 1), begin + static_cast<std::ptrdiff_t>(n_candidates_), BetterRank{});
    n_candidates_ = static_cast<std::size_t>(k);
    return candidates_[n_candidates_ - 1].logit;
  };
  n_candidates_ = 0;
  float threshold = kMinusInfinity;
  for_each_above(logits, threshold, [&](std::size_t i) {  // an equal one has a larger id than all that are in
    if (n_candidates_ == candidates_.size()) threshold = cut();
    if (logits[i] > threshold) {
      candidates_[n_candidates_++] = {.logit = usable(logits[i]), .id = static_cast<std::int32_t>(i), .weight = 0};
    }
    return true;
  });
  if (k > 0 && n_candidates_ > static_cast<std::size_t>(k)) cut();
  if (k > 0) sort_by_id();
}

void Sampler::sort_by_id() {
  std::sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(n_candidates_),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

// Weights in proportion to the softmax, the best token's being 1; gives their sum.
double Sampler::weigh(double temperature) {
  double total = 0;
  for (std::size_t i = 0; i < n_candidates_; ++i) {
    Candidate& c = candidates_[i];
    c.weight = sample_exp((static_cast<double>(c.logit) - best_) / temperature);
    total += c.weight;
  }
  return total;
}

// Ranks are made as far as they are needed, in growing pieces: the tokens that matter are few unless the distribution
// is nearly flat. What is sorted are keys; the candidates stay in order of ids.
void Sampler::keep_top_p() {
  const double wanted = options_.top_p * weigh(1.0);
  for (std::size_t i = 0; i < n_candidates_; ++i) ranks_[i] = rank_key(candidates_[i].logit, i);
  const auto begin = ranks_.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(n_candidates_);
  auto sorted = begin;
  double sum = 0;
  std::uint64_t last = 0;
  for (auto key = begin; key == begin || (key != end && sum < wanted); ++key) {
    if (key == sorted) {
      sorted += std::min(end - key, std::max<std::ptrdiff_t>(128, 7 * (key - begin)));
      if (sorted != end) std::nth_element(key, sorted, end);
      std::sort(key, sorted);
    }
    last = *key;
    sum += candidates_[last & 0xFFFFFFFFU].weight;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n_candidates_; ++i) {
    if (rank_key(candidates_[i].logit, i) <= last) candidates_[kept++] = candidates_[i];
  }
  n_candidates_ = kept;
}

void Sampler::keep_min_p() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n_candidates_; ++i) {
    const Candidate c = candidates_[i];
    if (sample_exp(static_cast<double>(c.logit) - best_) >= options_.min_p) candidates_[kept++] = c;
  }
  n_candidates_ = kept;
}

std::int32_t Sampler::draw() {
  const double target = random_.uniform() * weigh(options_.temperature);
  double sum = 0;
  std::int32_t last = candidates_[0].id;
  for (std::size_t i = 0; i < n_candidates_; ++i) {
    const Candidate& c = candidates_[i];
    if (c.weight > 0) last = c.id;
    sum += c.weight;
    if (sum > target) break;
  }
  return last;  // also where rounding made the target equal to the sum of all
}

}  // namespace conclave
