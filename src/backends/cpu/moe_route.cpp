// moe_route: the scores and sums that decide come from the row kernels, which have the bits of ops/scoring.h; the
// weights of the few that were chosen are f64.
#include "backends/cpu/moe_route.h"

#include <cmath>
#include <limits>

#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr std::int64_t kInserted = 32;  // up to so many are kept sorted while the ranks are read

float ordered(float x) {
  if (std::isnan(x)) return kLowest;
  return std::min(x, kLargest);
}

// Adds to the best `count` of what was offered so far, best first in `best`, of which `n` are there: those of begin ..
// end - 1. Indices are offered in ascending order, so an equal rank stands behind.
std::int64_t offer(const float* rank, std::int64_t begin, std::int64_t end, std::int64_t count, std::int32_t* best,
                   std::int64_t n) {
  float last = n == count ? rank[best[n - 1]] : 0;  // of a full list
  for (std::int64_t e = begin; e < end; ++e) {
    if (n == count && !(rank[e] > last)) continue;
    std::int64_t at = n < count ? n++ : n - 1;
    for (; at > 0 && rank[e] > rank[best[at - 1]]; --at) best[at] = best[at - 1];
    best[at] = static_cast<std::int32_t>(e);
    last = rank[best[n - 1]];
  }
  return n;
}

// The best `count` of the n candidates to the front of `candidates`, best first; nothing is allocated.
void select_best(const float* rank, std::int32_t* candidates, std::int64_t n, std::int64_t count) {
  const auto before = [&](std::int32_t a, std::int32_t b) {
    return rank[a] > rank[b] || (rank[a] == rank[b] && a < b);
  };
  if (count < n) std::nth_element(candidates, candidates + count, candidates + n, before);
  std::sort(candidates, candidates + count, before);
}

// A group's rank: its best, or the sum of its two best.
float group_rank(const RoutingRule& rule, const float* rank, std::int64_t n) {
  float first = kLowest;
  float second = kLowest;
  for (std::int64_t i = 0; i < n; ++i) {
    second = std::max(second, std::min(first, rank[i]));
    first = std::max(first, rank[i]);
  }
  if (rule.group_score == GroupScore::max || second == kLowest) return first;
  return ordered(first + second);
}

bool ranks_by_logit(const MoeRoute& op) {
  const RoutingRule& rule = op.rule;
  const bool by_logit = rule.score == Score::softmax || rule.score == Score::softmax_after_top_k;
  const bool sums_groups = rule.n_groups > 1 && rule.group_score == GroupScore::sum_of_two;
  return by_logit && !op.bias.defined() && !sums_groups;
}

}  // namespace

struct TokenRouter::Lists {
  float* logits;          // [n_experts], ordered
  float* ranks;           // [n_experts], or the logits
  std::int32_t* indices;  // [n_experts], or none
  float* group_ranks;     // [n_groups]
  std::int32_t* groups;   // [n_groups], the chosen ones first
  std::int32_t* chosen;   // [top_k], or the indices
  double* weights;        // [top_k]
};

TokenRouter::TokenRouter(const MoeRoute& op, const RowKernels& row) : op_(op), row_(row) {
  const std::int64_t n_experts = row_width(op.logits);
  if (n_experts == 0) return;
  logits_ = layout_.add<float>(n_experts);
  ranks_ = ranks_by_logit(op) ? logits_ : layout_.add<float>(n_experts);
  indices_ = layout_.add<std::int32_t>(op.rule.top_k > kInserted ? n_experts : 0);
  group_ranks_ = layout_.add<float>(op.rule.n_groups);
  groups_ = layout_.add<std::int32_t>(op.rule.n_groups);
  chosen_ = op.rule.top_k > kInserted ? indices_ : layout_.add<std::int32_t>(op.rule.top_k);
  weights_ = layout_.add<double>(op.rule.top_k);
}

TokenRouter::Lists TokenRouter::lists(std::byte* scratch) const {
  return {.logits = scratch_at<float>(scratch, logits_),
          .ranks = scratch_at<float>(scratch, ranks_),
          .indices = scratch_at<std::int32_t>(scratch, indices_),
          .group_ranks = scratch_at<float>(scratch, group_ranks_),
          .groups = scratch_at<std::int32_t>(scratch, groups_),
          .chosen = scratch_at<std::int32_t>(scratch, chosen_),
          .weights = scratch_at<double>(scratch, weights_)};
}

void TokenRouter::rank(const Lists& at, float max) const {
  if (at.ranks == at.logits) return;
  const std::int64_t n_experts = op_.logits.dim(1);
  row_.score(op_.rule.score, at.logits, max, at.ranks, n_experts);
  const float* bias = op_.bias.defined() ? reinterpret_cast<const float*>(row_address(op_.bias, {})) : nullptr;
  for (std::int64_t e = 0; e < n_experts; ++e) {
    const float rank = bias != nullptr ? at.ranks[e] + bias[e] : at.ranks[e];
    at.ranks[e] = at.logits[e] == kLowest ? kLowest : ordered(rank);
  }
}

void TokenRouter::choose(const Lists& at) const {
  const RoutingRule& rule = op_.rule;
  const std::int64_t per_group = op_.logits.dim(1) / rule.n_groups;
  at.groups[0] = 0;
  if (rule.n_groups > 1) {
    for (std::int64_t g = 0; g < rule.n_groups; ++g) {
      at.group_ranks[g] = group_rank(rule, at.ranks + g * per_group, per_group);
      at.groups[g] = static_cast<std::int32_t>(g);
    }
    select_best(at.group_ranks, at.groups, rule.n_groups, rule.top_groups);
    std::sort(at.groups, at.groups + rule.top_groups);  // so that the candidates ascend
  }
  std::int64_t n = 0;
  for (std::int64_t i = 0; i < rule.top_groups; ++i) {
    const std::int64_t begin = at.groups[i] * per_group;
    if (rule.top_k <= kInserted) {
      n = offer(at.ranks, begin, begin + per_group, rule.top_k, at.chosen, n);
      continue;
    }
    for (std::int64_t e = begin; e < begin + per_group; ++e) at.indices[n++] = static_cast<std::int32_t>(e);
  }
  if (rule.top_k > kInserted) select_best(at.ranks, at.indices, n, rule.top_k);
}

// The chosen experts' weights before the scales.
void TokenRouter::weigh(const Lists& at, float max) const {
  const RoutingRule& rule = op_.rule;
  double sum = 0;  // of the weights
  if (rule.score == Score::softmax || rule.score == Score::softmax_after_top_k) {
    const bool over_all = rule.score == Score::softmax;
    float largest = over_all ? max : kLowest;
    for (std::int64_t s = 0; s < rule.top_k && !over_all; ++s) largest = std::max(largest, at.logits[at.chosen[s]]);
    double total = over_all ? static_cast<double>(row_.exp_sum(at.logits, max, op_.logits.dim(1))) : 0;
    for (std::int64_t s = 0; s < rule.top_k; ++s) {
      const float l = at.logits[at.chosen[s]];
      at.weights[s] = l == kLowest ? 0 : std::exp(static_cast<double>(l) - static_cast<double>(largest));
      if (!over_all) total += at.weights[s];
    }
    for (std::int64_t s = 0; s < rule.top_k; ++s) sum += at.weights[s] /= total;
  } else {
    for (std::int64_t s = 0; s < rule.top_k; ++s) {
      const float l = at.logits[at.chosen[s]];
      const double x = static_cast<double>(l);
      const double score = rule.score == Score::sigmoid
                               ? 1 / (1 + std::exp(-x))
                               : std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
      sum += at.weights[s] = l == kLowest ? 0 : score;
    }
  }
  if (!rule.renormalize) return;
  for (std::int64_t s = 0; s < rule.top_k; ++s) at.weights[s] /= std::max(sum, 0x1p-14);
}

bool TokenRouter::route(std::int64_t token, std::byte* scratch) const {
  const RoutingRule& rule = op_.rule;
  const Lists at = lists(scratch);
  const float* logits = read_row(row_, op_.logits, {token}, at.logits);
  const float max = row_.order(logits, at.logits, op_.logits.dim(1));
  const bool usable = max != kLowest;
  if (usable) {
    rank(at, max);
    choose(at);
    weigh(at, max);
  } else {
    for (std::int64_t s = 0; s < rule.top_k; ++s) {
      at.chosen[s] = static_cast<std::int32_t>(s);
      at.weights[s] = 1.0 / static_cast<double>(rule.top_k);
    }
  }
  std::int32_t* experts = i32_row(op_.out.experts, {token});
  auto* weights = reinterpret_cast<float*>(row_address(op_.out.weights, {token}));
  for (std::int64_t s = 0; s < rule.top_k; ++s) {
    double weight = at.weights[s] * static_cast<double>(rule.scale);
    if (op_.expert_scale.defined()) weight *= static_cast<double>(load(op_.expert_scale, {at.chosen[s]}));
    experts[s] = at.chosen[s];
    weights[s] = static_cast<float>(weight);
  }
  return usable;
}

void count_unusable(const Tensor& no_finite, std::int64_t rows) {
  if (!no_finite.defined()) return;
  store_i32(no_finite, {0},
            std::min<std::int64_t>(load_i32(no_finite, {0}) + rows, std::numeric_limits<std::int32_t>::max()));
}

void count_chosen(const Tensor& counts, std::int64_t expert, std::int64_t times) {
  if (!counts.defined()) return;
  const auto count = static_cast<std::uint32_t>(load_i32(counts, {expert}));
  store_i32(counts, {expert}, static_cast<std::int32_t>(count + static_cast<std::uint32_t>(times)));
}

namespace {

class CpuMoeRoute final : public CpuOp {
 public:
  CpuMoeRoute(const MoeRoute& op, const RowKernels& row) : op_(op), router_(op, row) {
    shared_.add<std::int8_t>(op.out.no_finite.defined() && row_width(op.logits) > 0 ? op.logits.dim(0) : 0);
  }
  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  std::int64_t local_bytes() const override { return router_.scratch_bytes(); }
  void run(const CpuRun& run) const override {
    const std::int64_t n_live = live_rows(op_.live, op_.logits.dim(0));
    const std::int64_t work = kWorkPerLogit * row_width(op_.logits);
    const bool alone = rows_alone(n_live, work);
    const bool unusable_counts = op_.out.no_finite.defined();
    const bool counts = unusable_counts || op_.out.counts.defined();
    std::int8_t* unusable = scratch_at<std::int8_t>(run.shared, 0);
    for_rows(run.region, n_live, work, [&](std::int64_t t) {
      const bool usable = router_.route(t, run.local);
      if (alone) {
        count(t, usable);
      } else if (unusable_counts) {
        unusable[t] = usable ? 0 : 1;
      }
    });
    if (!counts || alone) return;
    if (run.region.rank() == 0) {
      for (std::int64_t t = 0; t < n_live; ++t) count(t, !unusable_counts || unusable[t] == 0);
    }
    run.region.barrier();
  }

 private:
  static constexpr std::int64_t kWorkPerLogit = 8;  // against an element of other ops

  // What token t adds to the counters. One thread at a time.
  void count(std::int64_t t, bool usable) const {
    if (!usable) count_unusable(op_.out.no_finite, 1);
    if (!op_.out.counts.defined()) return;
    for (std::int64_t s = 0; s < op_.rule.top_k; ++s) {
      count_chosen(op_.out.counts, load_i32(op_.out.experts, {t, s}), 1);
    }
  }

  MoeRoute op_;
  TokenRouter router_;
  ScratchLayout shared_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeRoute& op, const CpuKernels& kernels) {
  return std::make_unique<CpuMoeRoute>(op, kernels.row);
}

}  // namespace conclave
