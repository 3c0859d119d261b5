// Pairs sorted by expert, stably: what moe_group, moe_pairs_by_token, moe_expert_ids and moe_align_blocks are views of.
//
// Pairs are cut into runs, one per warp, in pair order. A warp counts its run; the counts of the warps before it are
// where its pairs begin within their experts; it then places its run in order. Three ways, by shapes alone:
//
//   alone   few pairs: one block does it all in one launch
//   tiled   more pairs: a block per tile of pairs counts, a warp per expert adds up the tiles, the blocks place
//   owned   very many experts: counts in memory; every warp looks at all pairs and places those of its own experts
#pragma once

#include <algorithm>

#include "backends/cuda/view.h"

namespace conclave::cuda {

// i32 [n_tokens, top_k], by pair.
struct PairTable {
  std::byte* data = nullptr;
  std::int64_t stride = 0;  // bytes between tokens
  bool dense = false;       // pair p lies at element p
};
constexpr PairTable pair_table(const View& v) {
  return {v.data, v.strides[0], v.dims[0] <= 1 || v.strides[0] == v.dims[1] * 4};
}

// Outputs that are null are not made.
struct GroupArgs {
  PairTable experts;
  const std::int32_t* live = nullptr;
  std::int32_t n_tokens = 0;
  std::int32_t top_k = 0;  // n_tokens * top_k is below 2^31
  std::int32_t n_experts = 0;
  std::byte* scratch = nullptr;  // group_scratch_bytes()

  std::int32_t* offsets = nullptr;   // [n_experts + 1]
  std::int32_t* row_pair = nullptr;  // [n_pairs]
  bool row_tokens = false;           // row_pair holds tokens instead
  PairTable pair_row;

  std::byte* ids = nullptr;  // [n_experts, ids_stride bytes]
  std::int64_t ids_stride = 0;
  std::int32_t* tpe = nullptr;       // [n_experts]
  std::int32_t* max_rows = nullptr;  // [1]; the grids are made with it, and nr1 is at least 1
  std::uint32_t* grid_gate_up = nullptr;
  std::uint32_t* grid_down = nullptr;
  std::int64_t nr1 = 1;
  std::uint32_t gate_up_columns = 0;  // the grids' second numbers
  std::uint32_t down_columns = 0;

  std::int32_t* sorted_ids = nullptr;    // [capacity]; the two below go with it
  std::int32_t* block_expert = nullptr;  // [n_blocks]
  std::int32_t* n_padded = nullptr;      // [1]
  std::int64_t capacity = 0;
  std::int64_t n_blocks = 0;
  std::int32_t block_size = 1;
  bool sorted_pairs = false;  // sorted_ids holds pairs, else packed rows
};

inline constexpr std::int64_t kAlonePairs = 2048;
inline constexpr std::int64_t kTileExperts = 1024;  // more are owned
inline constexpr std::int64_t kTilePairs = 512;     // of the smallest tile
inline constexpr std::int64_t kMaxTiles = 256;
inline constexpr int kTileWarps = 8;
inline constexpr int kColumn = 8;  // counts of so many warps are read together: warps come in eights
inline constexpr std::int64_t kOwnerBlocks = 128;

enum class GroupPath { alone, tiled, owned };

struct GroupPlan {
  GroupPath path = GroupPath::alone;
  std::int64_t tiles = 1;
  std::int64_t tile_pairs = 0;  // of each tile but the last
  LaunchPlan place;             // the launch that writes the outputs
  std::int64_t scratch_bytes = 0;
};

// Offsets, padded offsets, and counts of every warp.
constexpr std::int64_t place_shared_bytes(std::int64_t n_experts, std::int64_t warps) {
  return (2 * (n_experts + 1) + warps * n_experts) * 4;
}

constexpr GroupPlan group_plan(std::int64_t n_pairs, std::int64_t n_experts) {
  GroupPlan plan;
  if (n_experts > kTileExperts) {
    plan.path = GroupPath::owned;
    plan.place = {kOwnerBlocks, kTileWarps * kWarp, 0};
    plan.scratch_bytes = (2 * (n_experts + 1) + n_experts) * 4;  // offsets, padded offsets, counts
    return plan;
  }
  if (n_pairs <= kAlonePairs) {
    const std::int64_t most = n_experts <= 512 ? 32 : 16;  // the counts stay within 64 KiB
    const std::int64_t warps = std::clamp<std::int64_t>(ceil_div(ceil_div(n_pairs, kWarp), kColumn) * kColumn, 8, most);
    plan.tile_pairs = n_pairs;
    plan.place = {1, static_cast<int>(warps) * kWarp, place_shared_bytes(n_experts, warps)};
    return plan;
  }
  plan.path = GroupPath::tiled;
  plan.tile_pairs = ceil_div(ceil_div(n_pairs, kMaxTiles), kTilePairs) * kTilePairs;
  plan.tiles = ceil_div(n_pairs, plan.tile_pairs);
  plan.place = {plan.tiles, kTileWarps * kWarp, place_shared_bytes(n_experts, kTileWarps)};
  plan.scratch_bytes = n_experts * (plan.tiles + 1) * 4;  // counts of each expert's tiles, counts
  return plan;
}

constexpr std::int64_t group_scratch_bytes(std::int64_t n_pairs, std::int64_t n_experts) {
  return group_plan(n_pairs, n_experts).scratch_bytes;
}

static_assert(group_plan(0, 8).place.blocks == 1 && group_plan(0, 8).place.threads == 256);
static_assert(group_plan(512, 128).place.threads == 512);
static_assert(group_plan(8192, 1024).place.shared_bytes <= 96 * 1024);
static_assert(group_plan(65536, 128).tiles == 128 && group_plan(65536, 128).tile_pairs == 512);
static_assert(group_plan(kMaxBlocks, 1024).tiles <= kMaxTiles);
static_assert(group_plan(kMaxBlocks, 1024).place.shared_bytes <= 48 * 1024);
static_assert(group_plan(3, 1025).path == GroupPath::owned);

// A cudaError_t.
int launch_group(const GroupArgs& args, const Stream& stream);

}  // namespace conclave::cuda
