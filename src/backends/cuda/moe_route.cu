// moe_route: a warp per token in registers (route_token.cuh), or a block per token with lists in scratch memory.
#include "backends/cuda/launch.cuh"
#include "backends/cuda/quantize.cuh"
#include "backends/cuda/route_token.cuh"

namespace conclave::cuda {
namespace {

// One chunk of a row for each warp of block `block`.
__device__ void fill_bank(const RouteBank& bank, int block) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int i = block * kRouteWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (i >= bank.rows * bank.chunks) return;
  float v[8];
  load_chunk(DType::f32, reinterpret_cast<const std::byte*>(bank.x + i / bank.chunks * bank.x_stride), i % bank.chunks,
             bank.k, lane, v);
  const QuantizedLane q = quantize_lane(v);
  reinterpret_cast<int2*>(bank.q + std::int64_t{i} * 256)[lane] = make_int2(q.low, q.high);
  if (lane == 0) bank.scale[i] = q.scale;
}

// Blocks from `routing` on fill the bank.
template <int kPer, bool kPlain>
__global__ void __launch_bounds__(kRouteWarps* kWarp)
    route_tokens(const __grid_constant__ RouteArgs args, int routing) {
  begin();
  if (static_cast<int>(blockIdx.x) >= routing) {
    fill_bank(args.bank, static_cast<int>(blockIdx.x) - routing);
    return;
  }
  const RouteRule how = known_rule<kPlain>(args.how);
  extern __shared__ std::uint32_t group_words[];
  __shared__ std::int32_t unusable;
  if (threadIdx.x == 0) unusable = 0;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t n_live = live_rows(args.live, args.logits.dims[0]);
  for (std::int64_t t = std::int64_t{blockIdx.x} * kRouteWarps + warp; t < n_live;
       t += std::int64_t{routing} * kRouteWarps) {
    float logits[kPer];
    load_logits(kPlain ? DType::f32 : args.logits.type, row_of(args.logits, t), how.n_experts, logits);
    const RoutedSlot slot = route_token(how, logits, group_words + warp * how.n_experts);
    if (lane < how.rule.top_k) {
      int_at(args.experts, t, lane) = slot.expert;
      float_at(args.weights, t, lane) = slot.weight;
      count_chosen(args.counts, slot.expert);
    }
    if (!slot.usable && lane == 0) atomicAdd(&unusable, 1);
  }
  __syncthreads();
  if (threadIdx.x == 0 && args.no_finite != nullptr && unusable > 0) count_unusable(args.no_finite, unusable);
}

// All threads of the block get the same value, made in the same order every time.
template <class T, class Combine>
__device__ T block_reduce(T value, Combine&& combine) {
  __shared__ T of_warp[kRouteBlockThreads / kWarp];
  for (int half = 16; half > 0; half /= 2) value = combine(value, __shfl_xor_sync(kAllLanes, value, half));
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = of_warp[0];
  for (int w = 1; w < kRouteBlockThreads / kWarp; ++w) value = combine(value, of_warp[w]);
  __syncthreads();
  return value;
}

using Key = unsigned long long;

__device__ Key block_max(Key key) {
  return block_reduce(key, [](Key a, Key b) { return a > b ? a : b; });
}
__device__ double block_sum(double x) {
  return block_reduce(x, [](double a, double b) { return a + b; });
}

// Ranks in the upper half, so that larger ranks come first; then the lower index. 0: not there.
__device__ Key key_of(float rank, std::int64_t index) {
  return (static_cast<Key>(order_of(rank)) << 32) | static_cast<std::uint32_t>(~static_cast<std::uint32_t>(index));
}
__device__ std::int64_t index_of(Key key) {
  return ~static_cast<std::uint32_t>(key);
}

// take(i, index) for the best `count` of the n keys, best first. The keys lie at their own index, with room up to the
// next power of two; they are used up.
template <class Take>
__device__ void select_best(Key* keys, std::int64_t n, std::int64_t count, Take&& take) {
  constexpr std::int64_t kRounds = 32;  // up to so many one by one, more by a bitonic sort
  const std::int64_t thread = threadIdx.x;
  __syncthreads();
  if (count <= kRounds) {
    for (std::int64_t i = 0; i < count; ++i) {
      Key best = 0;
      for (std::int64_t j = thread; j < n; j += kRouteBlockThreads) best = keys[j] > best ? keys[j] : best;
      best = block_max(best);
      if (thread == 0) {
        take(i, index_of(best));
        keys[index_of(best)] = 0;
      }
      __syncthreads();
    }
    return;
  }
  std::int64_t padded = 1;
  while (padded < n) padded *= 2;
  for (std::int64_t i = n + thread; i < padded; i += kRouteBlockThreads) keys[i] = 0;
  __syncthreads();
  for (std::int64_t run = 2; run <= padded; run *= 2) {
    for (std::int64_t gap = run / 2; gap > 0; gap /= 2) {
      for (std::int64_t i = thread; i < padded / 2; i += kRouteBlockThreads) {
        const std::int64_t a = (i & ~(gap - 1)) * 2 + (i & (gap - 1));
        const Key x = keys[a];
        const Key y = keys[a + gap];
        const bool falls = (a & run) == 0;
        if (falls ? x < y : x > y) {
          keys[a] = y;
          keys[a + gap] = x;
        }
      }
      __syncthreads();
    }
  }
  for (std::int64_t i = thread; i < count; i += kRouteBlockThreads) take(i, index_of(keys[i]));
  __syncthreads();
}

struct Lists {
  Key* keys;
  Key* group_keys;
  float* exps;
  std::int32_t* groups_in;
};

// Takes the experts of all but the best groups off the list of keys.
__device__ void drop_groups(const RouteRule& how, const Lists& at) {
  const std::int64_t n_groups = how.rule.n_groups;
  const std::int64_t per_group = how.n_experts / n_groups;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  __syncthreads();
  for (std::int64_t g = threadIdx.x / kWarp; g < n_groups; g += kRouteBlockThreads / kWarp) {
    std::uint32_t first = kLowestOrder;
    std::uint32_t second = kLowestOrder;
    for (std::int64_t m = lane; m < per_group; m += kWarp) {
      const auto rank = static_cast<std::uint32_t>(at.keys[g * per_group + m] >> 32);
      second = max(second, min(first, rank));
      first = max(first, rank);
    }
    for (int half = 16; half > 0; half /= 2) {
      const std::uint32_t other_first = __shfl_xor_sync(kAllLanes, first, half);
      const std::uint32_t other_second = __shfl_xor_sync(kAllLanes, second, half);
      second = max(max(second, other_second), min(first, other_first));
      first = max(first, other_first);
    }
    if (lane == 0) {
      at.group_keys[g] = key_of(group_rank(how.rule.group_score, from_order(first), from_order(second)), g);
      at.groups_in[g] = 0;
    }
  }
  select_best(at.group_keys, n_groups, how.rule.top_groups,
              [&](std::int64_t, std::int64_t group) { at.groups_in[group] = 1; });
  for (std::int64_t e = threadIdx.x; e < how.n_experts; e += kRouteBlockThreads) {
    if (at.groups_in[e / per_group] == 0) at.keys[e] = 0;
  }
}

// Whether the row had a usable logit: the same in all threads.
__device__ bool route_row(const RouteArgs& args, std::int64_t token, const Lists& at) {
  const RouteRule& how = args.how;
  const RoutingRule& rule = how.rule;
  const std::int64_t n_experts = how.n_experts;
  const std::byte* row = row_of(args.logits, token);
  const auto logit = [&](std::int64_t e) { return ordered(load_float(args.logits.type, row, e)); };
  const std::int64_t thread = threadIdx.x;

  Key largest = 0;
  for (std::int64_t e = thread; e < n_experts; e += kRouteBlockThreads) {
    const Key order = order_of(logit(e));
    largest = order > largest ? order : largest;
  }
  largest = block_max(largest);
  if (largest == kLowestOrder) {
    for (std::int64_t s = thread; s < rule.top_k; s += kRouteBlockThreads) {
      int_at(args.experts, token, s) = static_cast<std::int32_t>(s);
      count_chosen(args.counts, static_cast<std::int32_t>(s));
      float_at(args.weights, token, s) =
          scaled_weight(how, 1.0 / static_cast<double>(rule.top_k), static_cast<std::int32_t>(s));
    }
    return false;
  }
  float max_logit = from_order(static_cast<std::uint32_t>(largest));

  float total = 0;
  if (rule.score == Score::softmax) {
    __shared__ float shared_total;
    for (std::int64_t e = thread; e < n_experts; e += kRouteBlockThreads) at.exps[e] = score_exp(logit(e) - max_logit);
    __syncthreads();
    if (thread < kWarp) {
      float chain = 0;
#pragma unroll 8
      for (std::int64_t e = thread; e < n_experts; e += kWarp) chain = __fadd_rn(chain, at.exps[e]);
      chain = fold_chains(chain);
      if (thread == 0) shared_total = chain;
    }
    __syncthreads();
    total = shared_total;
  }

  for (std::int64_t e = thread; e < n_experts; e += kRouteBlockThreads) {
    const float l = logit(e);
    const float exp_of = rule.score == Score::softmax ? at.exps[e] : 0.0F;
    at.keys[e] = key_of(how.by_logit ? l : score_rank(how, l, exp_of, total, e), e);
  }
  if (rule.n_groups > 1) drop_groups(how, at);
  select_best(at.keys, n_experts, rule.top_k, [&](std::int64_t slot, std::int64_t expert) {
    int_at(args.experts, token, slot) = static_cast<std::int32_t>(expert);
  });

  if (rule.score == Score::softmax_after_top_k) {
    Key best = 0;
    for (std::int64_t s = thread; s < rule.top_k; s += kRouteBlockThreads) {
      const Key order = order_of(logit(int_at(args.experts, token, s)));
      best = order > best ? order : best;
    }
    max_logit = from_order(static_cast<std::uint32_t>(block_max(best)));
  }
  double chosen = 0;
  for (std::int64_t s = thread; s < rule.top_k; s += kRouteBlockThreads) {
    chosen += raw_weight(rule.score, logit(int_at(args.experts, token, s)), max_logit);
  }
  const double divisor = weight_divisor(rule, static_cast<double>(total), block_sum(chosen));
  for (std::int64_t s = thread; s < rule.top_k; s += kRouteBlockThreads) {
    const std::int32_t expert = int_at(args.experts, token, s);
    const double raw = raw_weight(rule.score, logit(expert), max_logit);
    float_at(args.weights, token, s) = scaled_weight(how, raw == 0 ? 0 : raw / divisor, expert);
    count_chosen(args.counts, expert);
  }
  return true;
}

__global__ void __launch_bounds__(kRouteBlockThreads) route_rows(const RouteArgs args, const RouteLists lists) {
  begin();
  std::byte* scratch = args.scratch + std::int64_t{blockIdx.x} * lists.bytes;
  const Lists at{reinterpret_cast<Key*>(scratch + lists.keys), reinterpret_cast<Key*>(scratch + lists.group_keys),
                 reinterpret_cast<float*>(scratch + lists.exps),
                 reinterpret_cast<std::int32_t*>(scratch + lists.groups_in)};
  const std::int64_t n_live = live_rows(args.live, args.logits.dims[0]);
  for (std::int64_t t = blockIdx.x; t < n_live; t += gridDim.x) {
    const bool usable = route_row(args, t, at);
    if (!usable && threadIdx.x == 0 && args.no_finite != nullptr) count_unusable(args.no_finite, 1);
    __syncthreads();
  }
}

}  // namespace

int launch_moe_route(const RouteArgs& args, const Stream& stream) {
  const std::int64_t n_experts = args.how.n_experts;
  LaunchPlan plan = route_plan(args.logits.dims[0], n_experts, args.how.rule);
  if (!routes_in_warp(args.how.rule, n_experts)) {
    return launch(route_rows, plan, stream, args, route_lists(n_experts, args.how.rule.n_groups));
  }
  const auto routing = static_cast<int>(plan.blocks);
  if (args.bank.q != nullptr) plan.blocks += ceil_div(std::int64_t{args.bank.rows} * args.bank.chunks, kRouteWarps);
  return by_experts_per_lane<32>(n_experts, [&](auto per) -> int {
    constexpr int kPer = decltype(per)::value;
    if constexpr (kPer <= kPlainPer) {
      if (is_plain(args.how, args.logits.type)) return launch(route_tokens<kPer, true>, plan, stream, args, routing);
    }
    return launch(route_tokens<kPer, false>, plan, stream, args, routing);
  });
}

}  // namespace conclave::cuda
