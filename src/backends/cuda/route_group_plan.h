// moe_route and moe_group in one launch, for up to 128 tokens that warps route (moe_route_plan.h).
//
// A warp routes a token. No token has an expert twice, so that a block's tokens are a bit each in a word of every expert:
// how many pairs of an expert come before one is a count of bits. The blocks, one for 8 or 16 tokens, form a cluster and
// give each other these words; then each of them knows all offsets and places the pairs of its own tokens. One block
// alone does so on any GPU. Blocks behind them, in clusters of the same size, make the rows of the product that follows
// int8: a launch less before it.
#pragma once

#include "backends/cuda/moe_route_plan.h"
#include "backends/cuda/product_plan.h"

namespace conclave::cuda {

struct RouteGroupArgs {
  RouteRule how;
  View logits;
  View experts;
  View weights;
  View pair_row;
  std::int32_t* offsets = nullptr;   // [n_experts + 1]
  std::int32_t* row_pair = nullptr;  // [n_tokens * top_k]
  std::int32_t* no_finite = nullptr;
  std::int32_t* counts = nullptr;  // [n_experts], or none
  const std::int32_t* live = nullptr;
  RowBank bank;  // rows to be made int8 on the side; q is null: none
};

inline constexpr int kMostRouting = 16;           // warps of a block, a token each
inline constexpr int kRoutingCluster = 8;         // blocks, at most
inline constexpr std::int64_t kMaxFilling = 128;  // blocks beside them, at most, but for a whole cluster
static_assert(kMostRouting <= kWarp);

// Few warps where they are enough: they share what routing takes of a multiprocessor.
constexpr int routing_warps(std::int64_t n_tokens, bool clusters) {
  constexpr int kFew = kMostRouting / 2;
  return n_tokens <= kFew * (clusters ? kRoutingCluster : 1) ? kFew : kMostRouting;
}
constexpr bool takes_route_group(std::int64_t n_tokens, std::int64_t n_experts, const RoutingRule& rule,
                                 bool clusters) {
  return n_tokens > 0 && n_tokens <= kMostRouting * (clusters ? kRoutingCluster : 1) && routes_in_warp(rule, n_experts);
}

// Words of shared memory: of each expert, the bits of all blocks, where it begins, how many pairs earlier blocks have;
// and what warps need to rank groups.
constexpr std::int64_t route_group_words(std::int64_t n_experts, int warps, int blocks, bool groups) {
  return n_experts * (blocks + 2 + (groups ? warps : 0)) + 1;
}

constexpr LaunchPlan route_group_plan(std::int64_t n_tokens, std::int64_t n_experts, const RoutingRule& rule,
                                      bool clusters) {
  const int warps = routing_warps(n_tokens, clusters);
  const auto blocks = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(ceil_div(n_tokens, warps))));
  return {.blocks = blocks,
          .threads = warps * kWarp,
          .shared_bytes = 4 * route_group_words(n_experts, warps, blocks, rule.n_groups > 1),
          .cluster = blocks};
}
// Blocks behind those, as large, which make rows of so many chunks in all: a chunk a warp, or some.
constexpr std::int64_t filling_blocks(std::int64_t chunks, const LaunchPlan& routing) {
  const std::int64_t wanted = ceil_div(chunks, routing.threads / kWarp);
  return ceil_div(std::min(wanted, kMaxFilling), routing.cluster) * routing.cluster;
}
static_assert(filling_blocks(0, route_group_plan(64, 128, {.top_k = 8}, true)) == 0 &&
              filling_blocks(64 * 8, route_group_plan(64, 128, {.top_k = 8}, true)) == 64 &&
              filling_blocks(33 * 8, route_group_plan(33, 128, {.top_k = 8}, true)) == 40 &&
              filling_blocks(128 * 28, route_group_plan(128, 256, {.top_k = 8}, true)) == kMaxFilling);
static_assert(route_group_plan(64, 128, {.top_k = 8}, true).blocks == 8 &&
              route_group_plan(64, 128, {.top_k = 8}, true).threads == 256);
static_assert(route_group_plan(128, 128, {.top_k = 8}, true).threads == 512);
static_assert(route_group_plan(16, 128, {.top_k = 8}, false).blocks == 1);
static_assert(route_group_plan(33, 128, {.top_k = 8}, true).blocks == 8);
static_assert(route_group_plan(128, kMaxWarpExperts, {.top_k = 8, .n_groups = 8}, true).shared_bytes <= 227 * 1024 &&
              route_group_plan(16, kMaxWarpExperts, {.top_k = 8, .n_groups = 8}, false).shared_bytes <= 99 * 1024);

// A cudaError_t. `clusters`: whether the GPU has them.
int launch_route_group(const RouteGroupArgs& args, bool clusters, const Stream& stream);

}  // namespace conclave::cuda
