// Heads and attention of one token over a long context, in two launches: what lone_heads_plan.h says, with the same
// bits, by blocks that share a KV head and are no cluster, as many as there are multiprocessors for.
//
// The blocks of a KV head are dealt whole ranges as long as no block gets more than if units were dealt one by one, and
// units of what is left. The warps of a block attend in teams of two, each to units of its own, and ask for the next
// keys as soon as there are scores, and for the next values when they are multiplied. A range is merged where it is
// computed, unit by unit, by the teams in turns; so what is left for the second launch is a range now and then, and up
// to seven units of each block. Its blocks have 32 elements of a row each: some threads merge the units of each range,
// others find out by what ranges are multiplied, then one warp merges them.
//
// H200, 2026-11-16, 12 layers, all warps on the same two units and a merge that was slower before: after 4,096
// positions 2,325 to 2,415, 2,419 and 2,405 tokens/s, after 32,768 1,516 to 1,615, 1,606 and 1,580. Where the
// context is short, a cluster is faster. Once it has begun, keys and values come at 4.4 TB/s, which is all that there
// is; what is lost is the time before there are queries, and the merge. Lost before: two blocks a multiprocessor (6%),
// the next kernel started before this one ends (3%), some of the next layer's keys and values fetched into the L2 while
// the router runs (1 to 5%), and the block's next units while it waits (0 to 3%). No gain: first copies a microsecond
// sooner, since then the products before them take as much longer; keys and values that leave the L2 first.
#pragma once

#include "backends/cuda/lone_heads_plan.h"

namespace conclave::cuda {

inline constexpr int kLongTeam = 2;                        // warps that share a unit
inline constexpr int kLongTeams = kUnitWarps / kLongTeam;  // of a block
inline constexpr int kLongSlots = 2 * kLongTeams;          // keys or values of a unit that a block has room for
inline constexpr int kLongMergeThreads = 288;              // so many that all units of an H200 are asked for at once
inline constexpr int kLongRanges = 128;                    // of a context, at most
inline constexpr int kLongPart = kWarp;                    // elements that a block merges
inline constexpr int kLongParts = kLoneHeadWidth / kLongPart;

// Positions that a token sees of a cache that is as long.
constexpr std::int64_t positions_upto(std::int32_t position, std::int64_t context) {
  return std::max(std::min(std::int64_t{position} + 1, context), std::int64_t{0});
}

// Which units a block has: whole ranges as long as no block gets more than if all of them were dealt one by one, and
// units of what is left.
struct LongDeal {
  std::int32_t workers = 1;  // blocks of a KV head
  std::int32_t n_units = 0;  // of what the token could see, were the cache as long
  std::int32_t n_whole = 0;  // ranges, the first so many
  std::int32_t each = 0;     // of them that every block has,
  std::int32_t more = 0;     // and the first so many blocks have another; the others share what is left

  constexpr LongDeal(std::int32_t blocks, std::int64_t positions)
      : workers(blocks),
        n_units(static_cast<std::int32_t>(ceil_div(positions, kUnit))),
        n_whole(std::min((n_units + blocks - 1) / blocks / kRangeUnits * blocks, n_units / kRangeUnits)),
        each(n_whole / blocks),
        more(n_whole % blocks) {}

  // Units of a block that are in its whole ranges.
  constexpr std::int32_t in_ranges(std::int32_t worker) const { return (each + (worker < more ? 1 : 0)) * kRangeUnits; }
  // The ith unit of a block.
  constexpr std::int32_t unit(std::int32_t worker, std::int32_t i) const {
    const std::int32_t whole = in_ranges(worker);
    if (i < whole) return (worker + i / kRangeUnits * workers) * kRangeUnits + i % kRangeUnits;
    return n_whole * kRangeUnits + worker - more + (i - whole) * (workers - more);
  }
  // How many a block has.
  constexpr std::int32_t count(std::int32_t worker) const {
    const std::int32_t left = n_units - n_whole * kRangeUnits - (worker - more);
    return in_ranges(worker) + (worker >= more && left > 0 ? (left - 1) / (workers - more) + 1 : 0);
  }
  constexpr std::int32_t n_ranges() const { return (n_units + kRangeUnits - 1) / kRangeUnits; }
};
static_assert(LongDeal(33, 32768).n_whole == 64 && LongDeal(33, 32768).count(0) == 16);
static_assert(LongDeal(33, 32769).unit(31, 8) == 512 && LongDeal(33, 32769).count(31) == 9);
static_assert(LongDeal(33, 33 * 16 * 64 + 1).n_whole == 66 && LongDeal(33, 33 * 16 * 64 + 1).count(0) == 17);
static_assert(LongDeal(33, 20000).n_whole == 33 && LongDeal(33, 20000).unit(2, 9) == 264 + 2 + 33);
static_assert(LongDeal(33, 4096).n_whole == 0 && LongDeal(33, 4096).count(0) == 2);
static_assert(LongDeal(33, 31 * 33 * 64).count(32) == kLoneOwnUnits);

// What the first launch leaves for the second, [n_kv_heads][max_units] of it: of a unit, or of a range in the place of
// its first unit.
struct LongKept {
  float* acc = nullptr;    // [kLoneGroup][128]
  float* sums = nullptr;   // [kLoneGroup][2]: maximum, sum
  float* heads = nullptr;  // [n_heads + n_kv_heads][128], normed and rotated: queries, keys
};

struct LongHeadsArgs {
  LoneHeadsArgs of;
  LongKept kept;
  std::int32_t workers = 1;
};

struct LongMergeArgs {
  LoneHeadRows q;
  LoneHeadRows k;
  LoneHeadRows out;
  LongKept kept;
  const std::int32_t* position = nullptr;
  const std::int32_t* live = nullptr;
  std::int64_t context = 0;
  std::int32_t group = 1;
  std::int32_t n_kv_heads = 1;
  std::int32_t max_units = 0;
  std::int32_t workers = 1;
};
constexpr LongMergeArgs long_merge_args(const LongHeadsArgs& args) {
  return {.q = args.of.q,
          .k = args.of.k,
          .out = args.of.out,
          .kept = args.kept,
          .position = args.of.position,
          .live = args.of.live,
          .context = args.of.context,
          .group = args.of.group,
          .n_kv_heads = args.of.n_kv_heads,
          .max_units = args.of.max_units,
          .workers = args.workers};
}

constexpr std::int32_t long_workers(std::int64_t multiprocessors, std::int64_t n_kv_heads) {
  return static_cast<std::int32_t>(multiprocessors / n_kv_heads);
}
constexpr bool long_heads_fit(std::int64_t max_units, std::int32_t workers) {
  return workers > 0 && max_units <= std::min<std::int64_t>(kLongRanges * kRangeUnits, kLoneOwnUnits * workers);
}

// Bytes of scratch: [acc | sums | heads].
struct LongScratch {
  std::int64_t sums = 0;
  std::int64_t heads = 0;
  std::int64_t total = 0;
};
constexpr LongScratch long_scratch(std::int64_t max_units, std::int64_t n_heads, std::int64_t n_kv_heads) {
  LongScratch at;
  at.sums = n_kv_heads * max_units * kLoneGroup * kLoneHeadWidth * 4;
  at.heads = at.sums + n_kv_heads * max_units * kLoneGroup * 8;
  at.total = at.heads + (n_heads + n_kv_heads) * kLoneHeadWidth * 4;
  return at;
}

inline constexpr std::int64_t kLongSlotBytes = kLoneUnitBytes / 2;
inline constexpr int kLongSlotPieces = static_cast<int>(kLongSlotBytes / 16);
// Bytes: what teams tell each other; a range on its way; the token's own key and value; barriers and turns.
inline constexpr std::int64_t kLongHeadsFixed =
    kLoneUnitsFixed + kLongTeams * kLoneGroup * (kWeightPieces * 16 + kLongTeam * 4) + kLoneGroup * kLoneHeadWidth * 4 +
    kLongTeam * kWarp * 8 + 2 * kLoneHeadWidth * 2 + kWarp * 8 + kLongSlots * 8 + 32;
inline constexpr std::int64_t kLongHeadsShared = kLongSlots * kLongSlotBytes + kLongHeadsFixed;
static_assert(2 * kLongHeadsShared > 228 * 1024);           // a block a multiprocessor,
static_assert(kLongHeadsShared + 68 * 1024 <= 226 * 1024);  // beside the products before it, where those are of Q4_K

constexpr LaunchPlan long_heads_plan(const LongHeadsArgs& args) {
  return {.blocks = std::int64_t{args.of.n_kv_heads} * args.workers,
          .threads = kUnitWarps * kWarp,
          .shared_bytes = kLongHeadsShared};
}
constexpr LaunchPlan long_merge_plan(const LongMergeArgs& args) {
  return {.blocks = std::int64_t{args.n_kv_heads} * args.group * kLongParts, .threads = kLongMergeThreads};
}

int launch_long_heads(const LongHeadsArgs& args, const Stream& stream);
int launch_long_merge(const LongMergeArgs& args, const Stream& stream);

}  // namespace conclave::cuda
