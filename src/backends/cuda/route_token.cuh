// One token routed by one warp: everything in registers. For up to 1024 experts, 32 slots and 32 groups
// (routes_in_warp). Lane l has the experts i * 32 + l: the chains of the canonical sum.
#pragma once

#include <type_traits>

#include "backends/cuda/element.cuh"
#include "backends/cuda/moe_route_plan.h"
#include "backends/cuda/scoring.cuh"

namespace conclave::cuda {

// What lane s < top_k gets for slot s. `usable` is the same in all lanes: false where the row had no usable logit.
struct RoutedSlot {
  std::int32_t expert;
  float weight;
  bool usable;
};
// The same before it is weighed.
struct ChosenSlot {
  std::int32_t expert;
  float logit;  // minus infinity in lanes past top_k: they have no weight
  float max;    // of all logits, and the sum of their exponentials where that is wanted
  float total;
  bool usable;
};

// Whoever routes a token calls it once for each of its slots. Integers: the order does not matter, and nobody waits for
// what was there.
__device__ __forceinline__ void count_chosen(std::int32_t* counts, std::int32_t expert) {
  if (counts != nullptr) atomicAdd(reinterpret_cast<unsigned*>(counts) + expert, 1U);
}

// exp(l - max), l not above max. f32 has enough digits, but not the range: weights may be divided by a small sum later.
__device__ __forceinline__ double weight_exp(float l, float max) {
  const float x = l - max;
  return x >= -80.0F ? static_cast<double>(expf(x)) : exp(static_cast<double>(l) - static_cast<double>(max));
}

// A chosen expert's weight before any division. `max`: of the logits that a softmax goes over.
__device__ __forceinline__ double raw_weight(Score score, float l, float max) {
  if (l == lowest()) return 0;
  if (score == Score::softmax || score == Score::softmax_after_top_k) return weight_exp(l, max);
  const double e = weight_exp(-fabsf(l), 0.0F);
  if (score == Score::sigmoid) return (l >= 0.0F ? 1.0 : e) / (1.0 + e);
  if (l < -80.0F) return sqrt(e);  // log(1 + e) = e
  return static_cast<double>(sqrtf(fmaxf(l, 0.0F) + log1pf(static_cast<float>(e))));
}

// What raw weights are divided by: the softmax's sum, then max(the sum of the weights, 2^-14), in one step.
// `over_all`: the sum of the exponentials of all experts; `chosen`: of the raw weights.
__device__ __forceinline__ double weight_divisor(const RoutingRule& rule, double over_all, double chosen) {
  const double total = rule.score == Score::softmax               ? over_all
                       : rule.score == Score::softmax_after_top_k ? chosen
                                                                  : 1.0;
  return rule.renormalize ? fmax(chosen, total * 0x1p-14) : total;
}

__device__ __forceinline__ float scaled_weight(const RouteRule& how, double weight, std::int32_t expert) {
  weight *= static_cast<double>(how.rule.scale);
  if (how.expert_scale != nullptr) weight *= static_cast<double>(how.expert_scale[expert]);
  return static_cast<float>(weight);
}

// rank[e] where it is not the logit itself. `e` is exp(l - max), `total` the sum of all of them: for softmax alone.
__device__ __forceinline__ float score_rank(const RouteRule& how, float l, float e, float total, std::int64_t expert) {
  if (l == lowest()) return l;
  float rank = l;
  if (how.rule.score == Score::softmax) rank = __fdiv_rn(e, total);
  if (how.rule.score == Score::sigmoid) rank = score_sigmoid(l);
  if (how.rule.score == Score::sqrt_softplus) rank = score_sqrt_softplus(l);
  if (how.bias != nullptr) rank = __fadd_rn(rank, how.bias[expert]);
  return ordered(rank);
}

// A group's rank from its two best ranks.
__device__ __forceinline__ float group_rank(GroupScore score, float first, float second) {
  return score == GroupScore::max || second == lowest() ? first : ordered(__fadd_rn(first, second));
}

// Over each kLanes lanes.
template <int kLanes>
__device__ __forceinline__ std::uint32_t max_of_lanes(std::uint32_t x) {
  if constexpr (kLanes == kWarp) {
    return __reduce_max_sync(kAllLanes, x);
  } else {
#pragma unroll
    for (int half = kLanes / 2; half > 0; half /= 2) x = max(x, __shfl_xor_sync(kAllLanes, x, half));
    return x;
  }
}
template <int kLanes>
__device__ __forceinline__ double sum_of_lanes(double x) {
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) x += __shfl_xor_sync(kAllLanes, x, half);
  return x;
}

// The rule, with what is known of a plain one (is_plain) for the compiler to see.
template <bool kPlain>
__device__ __forceinline__ RouteRule known_rule(const RouteRule& how) {
  RouteRule known = how;
  if constexpr (kPlain) {
    known.by_logit = true;
    known.rule.score = Score::softmax;
    known.rule.n_groups = 1;
    known.bias = nullptr;
    known.expert_scale = nullptr;
  }
  return known;
}

// The lane's logits of a row in memory. Minus infinity past the last expert.
template <int kPer>
__device__ __forceinline__ void load_logits(DType type, const std::byte* row, std::int32_t n_experts,
                                            float (&logits)[kPer]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto load = [&](auto one_type) {  // the type is asked for once, so that the loads go out together
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const std::int32_t e = i * kWarp + lane;
      logits[i] = e < n_experts ? load_float(decltype(one_type)::value, row, e) : lowest();
    }
  };
  if (type == DType::f32) {
    load(std::integral_constant<DType, DType::f32>{});
  } else if (type == DType::f16) {
    load(std::integral_constant<DType, DType::f16>{});
  } else {
    load(std::integral_constant<DType, DType::bf16>{});
  }
}

// The groups that stay, as a mask. `keys` are the lane's ranks in order_of() form; `shared` has room for all of them.
template <int kPer>
__device__ __forceinline__ std::uint32_t chosen_groups(const RouteRule& how, const std::uint32_t (&keys)[kPer],
                                                       std::uint32_t* shared) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto n_groups = static_cast<std::int32_t>(how.rule.n_groups);
  const std::int32_t per_group = how.n_experts / n_groups;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const std::int32_t e = i * kWarp + lane;
    if (e < how.n_experts) shared[e] = keys[i];
  }
  __syncwarp();
  std::uint32_t first = kLowestOrder;
  std::uint32_t second = kLowestOrder;
  if (lane < n_groups) {
    std::int32_t m = lane % per_group;  // each lane begins elsewhere: no two in one bank
    for (std::int32_t j = 0; j < per_group; ++j) {
      const std::uint32_t key = shared[lane * per_group + m];
      second = max(second, min(first, key));
      first = max(first, key);
      m = m + 1 == per_group ? 0 : m + 1;
    }
  }
  const std::uint32_t rank =
      lane < n_groups ? order_of(group_rank(how.rule.group_score, from_order(first), from_order(second))) : 0;
  std::int32_t better = 0;
  for (int g = 0; g < n_groups; ++g) {
    const std::uint32_t other = __shfl_sync(kAllLanes, rank, g);
    if (other > rank || (other == rank && g < lane)) ++better;
  }
  return __ballot_sync(kAllLanes, lane < n_groups && better < static_cast<std::int32_t>(how.rule.top_groups));
}

// An expert and its rank in order_of() form: the larger is the better, of equal ranks the lower expert.
__device__ __forceinline__ std::uint64_t ranked_expert(std::uint32_t key, std::int32_t expert) {
  return std::uint64_t{key} << 32 | ~static_cast<std::uint32_t>(expert);
}
__device__ __forceinline__ std::int32_t expert_of(std::uint64_t ranked) {
  return static_cast<std::int32_t>(~static_cast<std::uint32_t>(ranked));
}
// Batcher's network: descending.
template <class Ranked, int kCount>
__device__ __forceinline__ void put_best_first(Ranked (&ranked)[kCount]) {
#pragma unroll
  for (int merged = 1; merged < kCount; merged *= 2) {
#pragma unroll
    for (int apart = merged; apart > 0; apart /= 2) {
#pragma unroll
      for (int i = apart % merged; i + apart < kCount; ++i) {
        if ((i - apart % merged) / apart % 2 != 0 || i / (2 * merged) != (i + apart) / (2 * merged)) continue;
        const Ranked better = ::max(ranked[i], ranked[i + apart]);
        ranked[i + apart] = ::min(ranked[i], ranked[i + apart]);
        ranked[i] = better;
      }
    }
  }
}

// Whether the sum over all experts can matter: not where the best logit is chosen in any case, whose exponential is 1,
// and weights are divided by the sum of the chosen, unless that is less than 2^-14 of the sum over all.
__device__ __forceinline__ bool wants_total(const RouteRule& how) {
  return how.rule.score == Score::softmax && !(how.by_logit && how.rule.renormalize && how.rule.n_groups <= 1);
}
static_assert(kMaxWarpExperts <= 1 << 14);

// What is known of a row of logits before any is chosen: their maximum and, where it is wanted, the sum of their
// exponentials.
template <int kPer>
struct LogitSurvey {
  float exps[kPer] = {};
  float max = lowest();
  float total = 0;
  bool usable = false;

  // All 32 lanes call it, with the lane's logits as load_logits() gives them; it puts them in order.
  __device__ __forceinline__ LogitSurvey(const RouteRule& how, float (&l)[kPer]) {
    std::uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      l[i] = ordered(l[i]);
      largest = ::max(largest, order_of(l[i]));
    }
    largest = __reduce_max_sync(kAllLanes, largest);
    if (largest == kLowestOrder) return;
    usable = true;
    max = from_order(largest);
    if (!wants_total(how)) return;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {  // what is not there is minus infinity: it adds nothing
      exps[i] = score_exp(l[i] - max);
      total = __fadd_rn(total, exps[i]);
    }
    total = fold_chains(total);
  }
};

// Which expert lane s < top_k gets for slot s, the others any. `keys`: of the lane's experts, in order_of() form. Per
// round the best of all lanes' bests; ties to the lower expert.
template <int kPer>
__device__ __forceinline__ std::int32_t choose_in_rounds(const std::uint32_t (&keys)[kPer], std::int32_t top_k) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::uint64_t ranked[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) ranked[i] = ranked_expert(keys[i], i * kWarp + lane);
  put_best_first(ranked);
  std::int32_t expert = 0;
#pragma unroll 1
  for (std::int32_t s = 0; s < top_k; ++s) {
    const auto mine = static_cast<std::uint32_t>(ranked[0] >> 32);
    const std::uint32_t best = __reduce_max_sync(kAllLanes, mine);
    const auto low = static_cast<std::uint32_t>(ranked[0]);
    const std::uint32_t winner = __reduce_max_sync(kAllLanes, mine == best ? low : 0U);
    if (s == lane) expert = static_cast<std::int32_t>(~winner);
    if (mine == best && low == winner) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) ranked[i] = i + 1 < kPer ? ranked[i + 1] : 0;
    }
  }
  return expert;
}
// The same by the keys' upper bits, with the expert in place of the lower ones: half of the instructions. False where
// that decides nothing, since two of the best, or the last of them and the next, differ in lower bits alone.
template <int kPer>
__device__ __forceinline__ bool choose_by_upper_bits(const std::uint32_t (&keys)[kPer], std::int32_t top_k,
                                                     std::int32_t& expert) {
  constexpr std::uint32_t kExpert = kPer * kWarp - 1;
  static_assert((kPer & (kPer - 1)) == 0);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (top_k >= kWarp) return false;
  std::uint32_t ranked[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    ranked[i] = (keys[i] & ~kExpert) | (kExpert - static_cast<std::uint32_t>(i * kWarp + lane));
  }
  put_best_first(ranked);
  std::uint32_t chosen = 0;
#pragma unroll 3
  for (std::int32_t s = 0; s <= top_k; ++s) {
    const std::uint32_t best = __reduce_max_sync(kAllLanes, ranked[0]);
    if (s == lane) chosen = best;
    if (ranked[0] == best) {
#pragma unroll
      for (int i = 0; i < kPer; ++i) ranked[i] = i + 1 < kPer ? ranked[i + 1] : 0;
    }
  }
  const std::uint32_t better = __shfl_up_sync(kAllLanes, chosen, 1);
  expert = static_cast<std::int32_t>(kExpert - (chosen & kExpert));
  return !__any_sync(kAllLanes, lane > 0 && lane <= top_k && (better ^ chosen) <= kExpert);
}

// All 32 lanes call it, with the lane's logits as load_logits() gives them. `shared`: n_experts words of the warp's own
// where there are groups, else unused.
template <int kPer>
__device__ __forceinline__ ChosenSlot choose_slot(const RouteRule& how, float (&l)[kPer], std::uint32_t* shared) {
  const RoutingRule& rule = how.rule;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto top_k = static_cast<std::int32_t>(rule.top_k);
  const bool by_logit = how.by_logit;
  const LogitSurvey<kPer> row(how, l);
  if (!row.usable) return {lane < top_k ? lane : 0, lowest(), lowest(), 0.0F, false};

  std::uint32_t keys[kPer];
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const std::int32_t e = i * kWarp + lane;
    keys[i] = 0;
    if (e < how.n_experts) keys[i] = order_of(by_logit ? l[i] : score_rank(how, l[i], row.exps[i], row.total, e));
  }
  if (rule.n_groups > 1) {
    const std::uint32_t in = chosen_groups(how, keys, shared);
    const std::int32_t per_group = how.n_experts / static_cast<std::int32_t>(rule.n_groups);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      const std::int32_t e = i * kWarp + lane;
      if (e < how.n_experts && ((in >> (e / per_group)) & 1U) == 0) keys[i] = 0;
    }
  }

  std::int32_t expert = 0;
  if (!choose_by_upper_bits(keys, top_k, expert)) expert = choose_in_rounds(keys, top_k);
  if (lane >= top_k) expert = 0;
  float logit = lowest();
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    const float other = __shfl_sync(kAllLanes, l[i], expert % kWarp);
    if (expert / kWarp == i) logit = other;
  }
  if (lane >= top_k) logit = lowest();
  return {expert, logit, row.max, row.total, true};
}

// All 32 lanes call it; each kLanes of them have a token.
template <int kLanes = kWarp>
__device__ __forceinline__ float slot_weight(const RouteRule& how, const ChosenSlot& slot) {
  const RoutingRule& rule = how.rule;
  float max_chosen = slot.max;
  if (rule.score == Score::softmax_after_top_k) {
    max_chosen = from_order(max_of_lanes<kLanes>(order_of(slot.logit)));
  }
  const double raw = raw_weight(rule.score, slot.logit, max_chosen);
  const bool sums = rule.renormalize || rule.score == Score::softmax_after_top_k;
  const double chosen = sums ? sum_of_lanes<kLanes>(raw) : 0;
  const double divisor = weight_divisor(rule, static_cast<double>(slot.total), chosen);
  const double weight = !slot.usable ? 1.0 / static_cast<double>(rule.top_k) : raw == 0 ? 0 : raw / divisor;
  return scaled_weight(how, weight, slot.expert);
}

template <int kPer>
__device__ __forceinline__ RoutedSlot route_token(const RouteRule& how, float (&l)[kPer], std::uint32_t* shared) {
  const ChosenSlot slot = choose_slot(how, l, shared);
  return {slot.expert, slot_weight(how, slot), slot.usable};
}

// no_finite goes up by `rows` and stays at 2^31 - 1.
__device__ __forceinline__ void count_unusable(std::int32_t* no_finite, std::int32_t rows) {
  constexpr std::int32_t kMost = 0x7FFFFFFF;
  std::int32_t seen = *reinterpret_cast<volatile std::int32_t*>(no_finite);
  while (seen < kMost) {
    const std::int32_t next = seen > kMost - rows ? kMost : seen + rows;
    const std::int32_t before = atomicCAS(no_finite, seen, next);
    if (before == seen) return;
    seen = before;
  }
}

}  // namespace conclave::cuda
