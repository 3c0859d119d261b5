// moe_route and moe_group in two launches, for more tokens than route_group takes.
//
// The first routes tiles of 16 or 32 tokens, a block each. As in route_group, a tile's tokens are a bit each in a word of
// every expert; the words are kept, and how many bits they have. The second places the pairs: a block adds up the counts
// of all tiles, so that it knows all offsets and how many pairs of an expert come before its own tiles.
#pragma once

#include "backends/cuda/route_group_plan.h"

namespace conclave::cuda {

struct RouteTiles {
  std::int32_t tokens = 0;  // of a tile
  std::int32_t tiles = 0;
  std::int32_t per_slice = 0;  // tiles whose pairs one block places
  std::int32_t slices = 0;
};
inline constexpr int kRouteTileWarps = 16;
inline constexpr int kPlacingThreads = 512;
inline constexpr std::int64_t kMostCounts = 64 * 1024;  // that a block reads
inline constexpr std::int32_t kMostSlices = 64;
inline constexpr std::int64_t kMostShared = 96 * 1024;
// A warp routes one token, or where they are many two.
constexpr RouteTiles route_tiles(std::int64_t n_tokens) {
  RouteTiles at;
  at.tokens = n_tokens <= 4096 ? kRouteTileWarps : 2 * kRouteTileWarps;
  at.tiles = static_cast<std::int32_t>(ceil_div(n_tokens, at.tokens));
  at.per_slice = static_cast<std::int32_t>(ceil_div(at.tiles, kMostSlices));
  at.slices = static_cast<std::int32_t>(ceil_div(at.tiles, at.per_slice));
  return at;
}
static_assert(route_tiles(512).tiles == 32 && route_tiles(512).slices == 32);
static_assert(route_tiles(8192).tiles == 256 && route_tiles(8192).per_slice == 4 && route_tiles(8192).slices == 64);

// Counts are bytes, four experts to a word.
constexpr std::int64_t count_words(std::int64_t n_experts) {
  return ceil_div(n_experts, 4);
}
// Scratch memory: the words of all tiles, then their counts.
constexpr std::int64_t route_tiles_scratch(std::int64_t n_tokens, std::int64_t n_experts) {
  return 4 * route_tiles(n_tokens).tiles * (n_experts + count_words(n_experts));
}
constexpr LaunchPlan route_tiles_plan(std::int64_t n_tokens, std::int64_t n_experts, const RoutingRule& rule) {
  return {.blocks = route_tiles(n_tokens).tiles,
          .threads = kRouteTileWarps * kWarp,
          .shared_bytes = 4 * (4 * count_words(n_experts) + (rule.n_groups > 1 ? kRouteTileWarps * n_experts : 0))};
}
// Sums of slices and offsets; of the block's own tiles the words, and how many pairs come before.
constexpr LaunchPlan place_tiles_plan(std::int64_t n_tokens, std::int64_t n_experts) {
  const RouteTiles at = route_tiles(n_tokens);
  return {.blocks = at.slices,
          .threads = kPlacingThreads,
          .shared_bytes = 4 * (at.slices * 4 * count_words(n_experts) + 2 * at.per_slice * n_experts + n_experts + 1)};
}
static_assert(place_tiles_plan(8192, 128).shared_bytes <= 48 * 1024);

constexpr bool takes_route_tiles(std::int64_t n_tokens, std::int64_t n_experts, const RoutingRule& rule) {
  return n_tokens > 0 && n_tokens <= kMostCounts && routes_in_warp(rule, n_experts) && n_experts <= 16 * kWarp &&
         route_tiles(n_tokens).tiles * n_experts <= kMostCounts &&
         route_tiles_plan(n_tokens, n_experts, rule).shared_bytes <= kMostShared &&
         place_tiles_plan(n_tokens, n_experts).shared_bytes <= kMostShared;
}
static_assert(takes_route_tiles(8192, 128, {.top_k = 8}) && takes_route_tiles(512, 256, {.top_k = 8, .n_groups = 8}));

// A cudaError_t. `scratch`: route_tiles_scratch().
int launch_route_tiles(const RouteGroupArgs& args, std::byte* scratch, const Stream& stream);

}  // namespace conclave::cuda
