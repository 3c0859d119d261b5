#include "ops/moe_route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/check.h"
#include "ops/host_access.h"
#include "ops/scoring.h"

namespace conclave {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLowest = -std::numeric_limits<float>::infinity();

using Floats = std::vector<float>;

// NaN to minus infinity, plus infinity to the largest finite float: afterwards the order is total.
float ordered(float x) {
  if (std::isnan(x)) return kLowest;
  return std::min(x, kLargest);
}

Floats ordered_logits(const Tensor& logits, std::int64_t token) {
  Floats l = load_row(logits, {token});
  for (float& x : l) x = ordered(x);
  return l;
}

// exp(l[e] - max) / sum, with the canonical sum.
Floats softmax_scores(const Floats& l, float max) {
  Floats score(l.size());
  float chains[32] = {};
  for (std::size_t e = 0; e < l.size(); ++e) {
    score[e] = score_exp(l[e] - max);
    chains[e % 32] += score[e];
  }
  const float sum = fold_chains(chains);
  for (float& s : score) s = s / sum;
  return score;
}

Floats scores(Score rule, const Floats& l, float max) {
  if (rule == Score::softmax) return softmax_scores(l, max);
  Floats score = l;
  if (rule == Score::sigmoid) std::transform(l.begin(), l.end(), score.begin(), score_sigmoid);
  if (rule == Score::sqrt_softplus) std::transform(l.begin(), l.end(), score.begin(), score_sqrt_softplus);
  return score;
}

Floats ranks(const MoeRoute& op, const Floats& l, float max) {
  const RoutingRule& rule = op.rule;
  const bool by_logit = rule.score == Score::softmax || rule.score == Score::softmax_after_top_k;
  const bool sums_groups = rule.n_groups > 1 && rule.group_score == GroupScore::sum_of_two;
  if (by_logit && !op.bias.defined() && !sums_groups) return l;

  Floats rank = scores(rule.score, l, max);
  for (std::size_t e = 0; e < l.size(); ++e) {
    if (op.bias.defined()) rank[e] += load(op.bias, {static_cast<std::int64_t>(e)});
    rank[e] = l[e] == kLowest ? kLowest : ordered(rank[e]);
  }
  return rank;
}

// The best `count` of `candidates` by rank, best first; equal ranks keep the order of the candidates.
std::vector<std::int64_t> best(std::vector<std::int64_t> candidates, std::int64_t count, const Floats& rank) {
  std::stable_sort(candidates.begin(), candidates.end(), [&](std::int64_t a, std::int64_t b) {
    return rank[static_cast<std::size_t>(a)] > rank[static_cast<std::size_t>(b)];
  });
  candidates.resize(static_cast<std::size_t>(count));
  return candidates;
}

std::vector<std::int64_t> first_integers(std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) all[static_cast<std::size_t>(i)] = i;
  return all;
}

float group_rank(const RoutingRule& rule, std::vector<float> members) {
  std::sort(members.begin(), members.end(), std::greater<>());
  if (rule.group_score == GroupScore::max || members.size() < 2 || members[1] == kLowest) return members[0];
  return ordered(members[0] + members[1]);
}

std::vector<std::int64_t> choose(const RoutingRule& rule, const Floats& rank) {
  const auto n_experts = static_cast<std::int64_t>(rank.size());
  if (rule.n_groups == 1) return best(first_integers(n_experts), rule.top_k, rank);

  const std::int64_t per_group = n_experts / rule.n_groups;
  Floats group_ranks;
  for (std::int64_t g = 0; g < rule.n_groups; ++g) {
    const auto begin = rank.begin() + g * per_group;
    group_ranks.push_back(group_rank(rule, {begin, begin + per_group}));
  }
  std::vector<std::int64_t> groups = best(first_integers(rule.n_groups), rule.top_groups, group_ranks);
  std::sort(groups.begin(), groups.end());  // so that the candidates ascend
  std::vector<std::int64_t> left;
  for (const std::int64_t g : groups) {
    for (std::int64_t e = g * per_group; e < (g + 1) * per_group; ++e) left.push_back(e);
  }
  return best(std::move(left), rule.top_k, rank);
}

// The chosen experts' weights before renormalising, in f64.
std::vector<double> raw_weights(Score rule, const Floats& l, const std::vector<std::int64_t>& chosen) {
  const auto logit = [&](std::int64_t e) { return static_cast<double>(l[static_cast<std::size_t>(e)]); };
  std::vector<double> weights;
  if (rule == Score::softmax || rule == Score::softmax_after_top_k) {
    const std::vector<std::int64_t> all = first_integers(static_cast<std::int64_t>(l.size()));
    const std::vector<std::int64_t>& over = rule == Score::softmax ? all : chosen;
    double max = static_cast<double>(kLowest);
    for (const std::int64_t e : over) max = std::max(max, logit(e));
    double sum = 0;
    for (const std::int64_t e : over) sum += logit(e) == kLowest ? 0 : std::exp(logit(e) - max);
    for (const std::int64_t e : chosen) weights.push_back(logit(e) == kLowest ? 0 : std::exp(logit(e) - max) / sum);
    return weights;
  }
  for (const std::int64_t e : chosen) {
    const double x = logit(e);
    const double score = rule == Score::sigmoid ? 1 / (1 + std::exp(-x))
                                                : std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
    weights.push_back(x == kLowest ? 0 : score);
  }
  return weights;
}

// As unsigned numbers, which start anew at 2^32.
void add_to_count(const Tensor& counts, std::int64_t expert, std::uint32_t times) {
  const auto count = static_cast<std::uint32_t>(load_i32(counts, {expert}));
  store_i32(counts, {expert}, static_cast<std::int32_t>(count + times));
}

void count_row_without_logit(const Tensor& counter) {
  if (!counter.defined()) return;
  const std::int32_t count = load_i32(counter, {0});
  if (count < std::numeric_limits<std::int32_t>::max()) store_i32(counter, {0}, count + 1);
}

void route_row(const MoeRoute& op, std::int64_t token) {
  const RoutingRule& rule = op.rule;
  const Floats l = ordered_logits(op.logits, token);
  const float max = *std::max_element(l.begin(), l.end());

  std::vector<std::int64_t> chosen;
  std::vector<double> weights;
  if (max == kLowest) {
    chosen = first_integers(rule.top_k);
    weights.assign(chosen.size(), 1.0 / static_cast<double>(rule.top_k));
    count_row_without_logit(op.out.no_finite);
  } else {
    chosen = choose(rule, ranks(op, l, max));
    weights = raw_weights(rule.score, l, chosen);
    if (rule.renormalize) {
      double sum = 0;
      for (const double w : weights) sum += w;
      for (double& w : weights) w /= std::max(sum, 0x1p-14);
    }
  }
  for (std::int64_t slot = 0; slot < rule.top_k; ++slot) {
    const std::int64_t expert = chosen[static_cast<std::size_t>(slot)];
    double weight = weights[static_cast<std::size_t>(slot)] * static_cast<double>(rule.scale);
    if (op.expert_scale.defined()) weight *= static_cast<double>(load(op.expert_scale, {expert}));
    store_i32(op.out.experts, {token, slot}, expert);
    if (op.out.counts.defined()) add_to_count(op.out.counts, expert, 1);
    store(op.out.weights, {token, slot}, weight);
  }
}

}  // namespace

void check_rule(const Check& check, const RoutingRule& rule, std::int64_t n_experts) {
  if (n_experts < 1) check.refuse("there are no experts");
  check.between("top_k", rule.top_k, 1, n_experts);
  check.finite("scale", static_cast<double>(rule.scale));
  check.between("n_groups", rule.n_groups, 1, n_experts);
  check.between("top_groups", rule.top_groups, 1, rule.n_groups);
  if (n_experts % rule.n_groups != 0) check.refuse("{} groups do not divide {} experts", rule.n_groups, n_experts);
  const std::int64_t left = n_experts / rule.n_groups * rule.top_groups;
  if (rule.top_k > left) check.refuse("top_k is {}, but {} groups hold {} experts", rule.top_k, rule.top_groups, left);
}

void validate(const MoeRoute& op) {
  const Check check(op);
  check.tensor("logits", op.logits, kFloat, {kAny, kAny});
  const std::int64_t n_tokens = op.logits.dim(0);
  const std::int64_t n_experts = op.logits.dim(1);
  check_rule(check, op.rule, n_experts);
  check.pairs(n_tokens, op.rule.top_k);
  check.optional("bias", op.bias, kF32, {n_experts});
  check.optional("expert_scale", op.expert_scale, kF32, {n_experts});
  check.optional("live", op.live, kI32, {1});
  check.tensor("experts", op.out.experts, kI32, {n_tokens, op.rule.top_k});
  check.tensor("weights", op.out.weights, kF32, {n_tokens, op.rule.top_k});
  check.optional("no_finite", op.out.no_finite, kI32, {1});
  check.optional("counts", op.out.counts, kI32, {n_experts});
}

void reference(const MoeRoute& op) {
  const std::int64_t n_live = live_rows(op.live, op.logits.dim(0));
  for (std::int64_t token = 0; token < n_live; ++token) route_row(op, token);
}

}  // namespace conclave
