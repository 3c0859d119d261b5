// moe_route on the GPU: who routes a token, and what the kernels are told.
//
// A warp routes a token in registers where there are few experts, slots and groups; else a block does, with lists in
// scratch memory.
#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include "backends/cuda/view.h"
#include "ops/routing.h"

namespace conclave::cuda {

// How a token is routed: the rule, and the tensors that belong to it.
struct RouteRule {
  RoutingRule rule;
  std::int32_t n_experts = 0;
  bool by_logit = false;                // ranks_by_logit()
  const float* bias = nullptr;          // [n_experts], or none
  const float* expert_scale = nullptr;  // [n_experts], or none
};

// Rows of f32 that blocks of the routing kernel make int8 on the side, as RowBank has them.
struct RouteBank {
  const float* x = nullptr;
  std::int64_t x_stride = 0;  // floats
  std::int8_t* q = nullptr;   // null: none
  float* scale = nullptr;
  std::int32_t rows = 0;
  std::int32_t k = 0;
  std::int32_t chunks = 0;
};

struct RouteArgs {
  RouteRule how;
  View logits;
  View experts;
  View weights;
  std::int32_t* no_finite = nullptr;
  std::int32_t* counts = nullptr;  // [n_experts], or none
  const std::int32_t* live = nullptr;
  std::byte* scratch = nullptr;  // route_scratch_bytes()
  RouteBank bank;                // where a warp routes a token
};

inline constexpr std::int64_t kMaxRoutedExperts = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxWarpExperts = 1024;
inline constexpr int kRouteWarps = 4;           // of a block that routes a token per warp
inline constexpr int kRouteBlockThreads = 512;  // of a block that routes one token
inline constexpr std::int64_t kMaxRouteBlocks = 264;
inline constexpr std::int64_t kMaxRouteScratch = std::int64_t{256} << 20;

// One lane has one slot, and one group.
constexpr bool routes_in_warp(const RoutingRule& rule, std::int64_t n_experts) {
  return n_experts <= kMaxWarpExperts && rule.top_k <= kWarp && rule.n_groups <= kWarp;
}

// Experts that each lane holds: 1, 2, 4, .. 32.
constexpr int experts_per_lane(std::int64_t n_experts) {
  return static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(ceil_div(n_experts, kWarp))));
}
// Calls launch(std::integral_constant<int, n>) with that number, kMost at most.
template <int kMost, int kPer = 1, class Launch>
int by_experts_per_lane(std::int64_t n_experts, Launch&& launch) {
  if constexpr (kPer < kMost) {
    if (experts_per_lane(n_experts) > kPer) return by_experts_per_lane<kMost, 2 * kPer>(n_experts, launch);
  }
  return launch(std::integral_constant<int, kPer>{});
}

// Where the order of the logits decides alone.
constexpr bool ranks_by_logit(const RoutingRule& rule, bool has_bias) {
  const bool by_logit = rule.score == Score::softmax || rule.score == Score::softmax_after_top_k;
  const bool sums_groups = rule.n_groups > 1 && rule.group_score == GroupScore::sum_of_two;
  return by_logit && !has_bias && !sums_groups;
}

// A rule that most models have: kernels that know it have half of the instructions.
inline bool is_plain(const RouteRule& how, DType logits) {
  return how.by_logit && how.rule.score == Score::softmax && how.rule.n_groups <= 1 && how.expert_scale == nullptr &&
         logits == DType::f32;
}
inline constexpr int kPlainPer = 8;  // experts of a lane, at most

// What a block that routes a token keeps in scratch memory: byte offsets.
struct RouteLists {
  std::int64_t keys = 0;        // u64 [n_experts, up to a power of two]
  std::int64_t group_keys = 0;  // u64 [n_groups, up to a power of two]
  std::int64_t exps = 0;        // f32 [n_experts]
  std::int64_t groups_in = 0;   // i32 [n_groups]
  std::int64_t bytes = 0;       // of all, a multiple of 16
};
constexpr RouteLists route_lists(std::int64_t n_experts, std::int64_t n_groups) {
  const auto padded = [](std::int64_t n) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
  };
  RouteLists at;
  at.group_keys = padded(n_experts) * 8;
  at.exps = at.group_keys + padded(n_groups) * 8;
  at.groups_in = at.exps + n_experts * 4;
  at.bytes = ceil_div(at.groups_in + n_groups * 4, 16) * 16;
  return at;
}

constexpr LaunchPlan route_plan(std::int64_t n_tokens, std::int64_t n_experts, const RoutingRule& rule) {
  if (n_tokens == 0) return {};
  if (routes_in_warp(rule, n_experts)) {
    const std::int64_t shared = rule.n_groups > 1 ? kRouteWarps * n_experts * 4 : 0;
    return {std::min(ceil_div(n_tokens, kRouteWarps), kMaxBlocks), kRouteWarps * kWarp, shared};
  }
  const std::int64_t fit = kMaxRouteScratch / route_lists(n_experts, rule.n_groups).bytes;
  return {std::min(n_tokens, std::clamp<std::int64_t>(fit, 1, kMaxRouteBlocks)), kRouteBlockThreads, 0};
}

constexpr std::int64_t route_scratch_bytes(std::int64_t n_tokens, std::int64_t n_experts, const RoutingRule& rule) {
  if (routes_in_warp(rule, n_experts)) return 0;
  return route_plan(n_tokens, n_experts, rule).blocks * route_lists(n_experts, rule.n_groups).bytes;
}

static_assert(route_plan(0, 128, {.top_k = 8}).blocks == 0);
static_assert(route_plan(8192, 128, {.top_k = 8}).blocks == 2048);
static_assert(route_plan(1, 256, {.top_k = 8, .n_groups = 8}).shared_bytes == 4096);
static_assert(route_plan(9, 1025, {.top_k = 8}).threads == kRouteBlockThreads);
static_assert(route_scratch_bytes(9, 1024, {.top_k = 32}) == 0 && route_scratch_bytes(9, 1024, {.top_k = 33}) > 0);
static_assert(experts_per_lane(1) == 1 && experts_per_lane(128) == 4 && experts_per_lane(129) == 8);

// A cudaError_t.
int launch_moe_route(const RouteArgs& args, const Stream& stream);

}  // namespace conclave::cuda
