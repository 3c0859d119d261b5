// moe_route: one simdgroup to a token. Nothing depends on how many experts, slots or groups there are: lane l looks at the
// experts l, l + 32, ..., and each round takes the best that comes after the last one in the order of ranks.
#pragma once

#include "backends/metal/kernels/scoring.h"

enum { kSoftmax, kSoftmaxAfterTopK, kSigmoid, kSqrtSoftplus };  // conclave::Score
enum { kKeysHeld = 8 };                                         // ranks that a lane keeps; others it computes again

// A token's logits and what all its experts share.
struct RouteRow {
  const device uchar* logits;
  float largest;
  float total;  // softmax alone: the sum of exponentials
};

static inline float logit_of(constant RouteArgs& args, thread const RouteRow& row, int e) {
  return ordered(load_float(args.logits.type, row.logits, e));
}

// rank[e] in order_of() form.
static inline uint rank_of(constant RouteArgs& args, Buffers buffers, thread const RouteRow& row, int e) {
  const float l = logit_of(args, row, e);
  if (args.by_logit != 0 || l == -INFINITY) return order_of(l);
  float rank = l;
  if (args.score == kSoftmax) rank = score_exp(l - row.largest) / row.total;
  if (args.score == kSigmoid) rank = score_sigmoid(l);
  if (args.score == kSqrtSoftplus) rank = score_sqrt_softplus(l);
  if (args.bias.rank != 0) rank += load_float(kF32, buffers.at[RouteArgs::kBias] + args.bias.offset, e);
  return order_of(ordered(rank));
}

static inline device int* groups_of(constant RouteArgs& args, Buffers buffers, long t) {
  return ints_at(buffers.at[RouteArgs::kGroupsIn], args.groups_in) + t * args.n_groups;
}

static inline RouteRow open_row(constant RouteArgs& args, Buffers buffers, long t, uint lane) {
  RouteRow row = {row_at(args.logits, buffers.at[RouteArgs::kLogits], t), -INFINITY, 0.0f};
  const int n = int(args.logits.dims[1]);
  uint largest = kLowestOrder;
  for (int e = int(lane); e < n; e += kSimdWidth) largest = max(largest, order_of(logit_of(args, row, e)));
  row.largest = from_order(simd_max(largest));
  if (args.score == kSoftmax) {
    float chain = 0.0f;
    for (int e = int(lane); e < n; e += kSimdWidth) chain += score_exp(logit_of(args, row, e) - row.largest);
    row.total = simd_broadcast(fold_chains(chain), ushort(0));
  }
  return row;
}

// Marks the groups that stay. A lane looks after its own groups alone: others see the marks after a barrier.
static inline void choose_groups(constant RouteArgs& args, Buffers buffers, thread const RouteRow& row, long t,
                                 uint lane) {
  device int* marks = groups_of(args, buffers, t);
  const int per_group = int(args.logits.dims[1]) / args.n_groups;
  for (int g = int(lane); g < args.n_groups; g += kSimdWidth) {
    uint first = kLowestOrder;
    uint second = kLowestOrder;
    for (int i = 0; i < per_group; ++i) {
      const uint key = rank_of(args, buffers, row, g * per_group + i);
      second = max(second, min(first, key));
      first = max(first, key);
    }
    if (args.sum_of_two != 0 && second != kLowestOrder)
      first = order_of(ordered(from_order(first) + from_order(second)));
    marks[g] = int(first);
  }
  uint last = 0xFFFFFFFFu;
  int last_group = -1;
  for (int round = 0; round < args.top_groups; ++round) {
    uint best = 0;
    int which = 0x7FFFFFFF;
    for (int g = int(lane); g < args.n_groups; g += kSimdWidth) {
      const uint key = uint(marks[g]);
      if (key > best && (key < last || (key == last && g > last_group))) {
        best = key;
        which = g;
      }
    }
    last = simd_max(best);
    last_group = int(simd_min(uint(best == last ? which : 0x7FFFFFFF)));
  }
  for (int g = int(lane); g < args.n_groups; g += kSimdWidth) {
    const uint key = uint(marks[g]);
    marks[g] = key > last || (key == last && g <= last_group) ? 1 : 0;
  }
}

// A chosen expert's weight before any division.
static inline Scaled raw_weight(int score, float l, float largest) {
  if (l == -INFINITY) return {0.0f, 0};
  if (score == kSoftmax || score == kSoftmaxAfterTopK) return scaled_exp(l - largest);
  if (score == kSigmoid) {
    if (l < -80.0f) return scaled_exp(l);
    return {score_sigmoid(l), 0};
  }
  if (l < -80.0f) return scaled_exp(0.5f * l);  // log(1 + e) = e
  return {score_sqrt_softplus(l), 0};
}

static inline void store_weight(constant RouteArgs& args, Buffers buffers, device float* weights, long s, int expert,
                                float m, int e) {
  m *= args.scale;
  if (args.expert_scale.rank != 0)
    m *= load_float(kF32, buffers.at[RouteArgs::kScale] + args.expert_scale.offset, expert);
  weights[s] = ldexp(m, e);
}

static inline void count_chosen(constant RouteArgs& args, Buffers buffers, int expert) {
  if (args.counts.rank == 0) return;
  device atomic_int* counts = (device atomic_int*)(buffers.at[RouteArgs::kTimesChosen] + args.counts.offset);
  atomic_fetch_add_explicit(counts + expert, 1, memory_order_relaxed);
}

// A row without a usable logit: the first experts, equal weights, and the counter goes up to 2^31 - 1 at most.
static inline void route_blindly(constant RouteArgs& args, Buffers buffers, long t, uint lane) {
  device int* experts = (device int*)row_at(args.experts, buffers.at[RouteArgs::kExperts], t);
  device float* weights = (device float*)row_at(args.weights, buffers.at[RouteArgs::kWeights], t);
  for (int s = int(lane); s < args.top_k; s += kSimdWidth) {
    experts[s] = s;
    count_chosen(args, buffers, s);
    store_weight(args, buffers, weights, s, s, 1.0f / float(args.top_k), 0);
  }
  if (lane != 0 || args.no_finite.rank == 0) return;
  device atomic_int* counter = (device atomic_int*)(buffers.at[RouteArgs::kNoFinite] + args.no_finite.offset);
  int seen = atomic_fetch_add_explicit(counter, 0, memory_order_relaxed);
  while (seen < 0x7FFFFFFF &&
         !atomic_compare_exchange_weak_explicit(counter, &seen, seen + 1, memory_order_relaxed, memory_order_relaxed)) {
  }
}

// After choose_groups() and a barrier, where there are groups.
static inline void route_row(constant RouteArgs& args, Buffers buffers, thread const RouteRow& row, long t, uint lane) {
  if (row.largest == -INFINITY) {
    route_blindly(args, buffers, t, lane);
    return;
  }
  const int n = int(args.logits.dims[1]);
  const int per_group = n / args.n_groups;
  device int* experts = (device int*)row_at(args.experts, buffers.at[RouteArgs::kExperts], t);
  device float* weights = (device float*)row_at(args.weights, buffers.at[RouteArgs::kWeights], t);
  device int* marks = groups_of(args, buffers, t);
  uint held[kKeysHeld];
  for (int i = 0; i < kKeysHeld; ++i) {
    const int e = i * kSimdWidth + int(lane);
    held[i] = e < n ? rank_of(args, buffers, row, e) : 0;
    if (args.n_groups > 1 && e < n && marks[e / per_group] == 0) held[i] = 0;
  }
  uint last = 0xFFFFFFFFu;
  int last_expert = -1;
  float largest_chosen = -INFINITY;
  for (int s = 0; s < args.top_k; ++s) {
    uint best = 0;
    int which = 0x7FFFFFFF;
    for (int i = 0; i < kKeysHeld; ++i) {
      const int e = i * kSimdWidth + int(lane);
      if (held[i] > best && (held[i] < last || (held[i] == last && e > last_expert))) {
        best = held[i];
        which = e;
      }
    }
    for (int e = kKeysHeld * kSimdWidth + int(lane); e < n; e += kSimdWidth) {
      if (args.n_groups > 1 && marks[e / per_group] == 0) continue;
      const uint key = rank_of(args, buffers, row, e);
      if (key > best && (key < last || (key == last && e > last_expert))) {
        best = key;
        which = e;
      }
    }
    last = simd_max(best);
    last_expert = int(simd_min(uint(best == last ? which : 0x7FFFFFFF)));
    if (s % kSimdWidth == int(lane)) {
      experts[s] = last_expert;
      count_chosen(args, buffers, last_expert);
    }
    largest_chosen = max(largest_chosen, logit_of(args, row, last_expert));
  }
  // Lane l has the slots l, l + 32, ...
  const float largest = args.score == kSoftmaxAfterTopK ? largest_chosen : row.largest;
  float sum = 0.0f;
  for (int s = int(lane); s < args.top_k; s += kSimdWidth) {
    const Scaled raw = raw_weight(args.score, logit_of(args, row, experts[s]), largest);
    sum += ldexp(raw.m, raw.e);
  }
  const float chosen = simd_sum(sum);
  const float all = args.score == kSoftmax ? row.total : args.score == kSoftmaxAfterTopK ? chosen : 1.0f;
  const float divisor = args.renormalize != 0 ? max(chosen, all * 6.103515625e-5f) : all;
  for (int s = int(lane); s < args.top_k; s += kSimdWidth) {
    const Scaled raw = raw_weight(args.score, logit_of(args, row, experts[s]), largest);
    store_weight(args, buffers, weights, s, experts[s], raw.m / divisor, raw.e);
  }
}

// The threads of a threadgroup route the tokens first, first + step, ..., a simdgroup each.
static inline void route_tokens(constant RouteArgs& args, Buffers buffers, long first, long step, Place at) {
  const long n_live = live_rows(args.live, buffers.at[RouteArgs::kLive], args.logits.dims[0]);
  for (long base = first; base < n_live; base += step) {
    const long t = base + at.simd;
    RouteRow row = {buffers.at[RouteArgs::kLogits], -INFINITY, 0.0f};
    if (t < n_live) {
      row = open_row(args, buffers, t, at.lane);
      if (args.n_groups > 1) choose_groups(args, buffers, row, t, at.lane);
    }
    if (args.n_groups > 1) threadgroup_barrier(mem_flags::mem_device);
    if (t < n_live) route_row(args, buffers, row, t, at.lane);
  }
}
