// Heads and attention of one token over a long context, in two launches: what lone_heads_plan.h says, with the same
// bits, by blocks that share a KV head and are no cluster, as many as there are multiprocessors for.
//
// The blocks of a KV head are dealt whole ranges as long as each gets as many of them, and units of what is left. One
// warp of a block copies, the others attend. A range is merged where it is computed; so what is left for the second
// launch is a range now and then, and up to eight units of each block. Its blocks have 32 elements of a row each: some
// threads merge the units of each range, then one warp the ranges.
//
// H200, 2026-11-16, 12 layers: 1,339 to 1,509 tokens/s after 32,768 positions, 2,169 to 2,328 after 4,096; where the
// context is short, a cluster is faster (2,768 instead of 2,485). Keys and values come at 3 TB/s, and it is not known
// why not faster. Lost: two blocks a multiprocessor (6%), units one by one (1 to 2%), the next kernel started before
// this one ends (3%), some of the next layer's keys and values fetched into the L2 while the router runs (1 to 5%).
#pragma once

#include "backends/cuda/lone_heads_plan.h"

namespace conclave::cuda {

inline constexpr int kLongHeld = kLoneHeldUnits;               // units whose keys and values a block has room for
inline constexpr int kLongThreads = (kUnitWarps + 1) * kWarp;  // one warp copies
inline constexpr int kLongRanges = 128;                        // of a context, at most
inline constexpr int kLongPart = kWarp;                        // elements that a block merges
inline constexpr int kLongParts = kLoneHeadWidth / kLongPart;

// Which units a block has.
struct LongDeal {
  std::int32_t workers = 1;  // blocks of a KV head
  std::int32_t n_units = 0;  // of what the token could see, were the cache as long
  std::int32_t each = 0;     // ranges that each of them has whole
  std::int32_t n_whole = 0;  // of all, the first so many

  constexpr LongDeal(std::int32_t blocks, std::int64_t positions)
      : workers(blocks),
        n_units(static_cast<std::int32_t>(ceil_div(positions, kUnit))),
        each(n_units / (kRangeUnits * blocks)),
        n_whole(each * blocks) {}

  // The ith unit of a block.
  constexpr std::int32_t unit(std::int32_t worker, std::int32_t i) const {
    const std::int32_t turn = i / kRangeUnits;
    if (turn < each) return (worker + turn * workers) * kRangeUnits + i % kRangeUnits;
    return n_whole * kRangeUnits + worker + (i - each * kRangeUnits) * workers;
  }
  // How many a block has.
  constexpr std::int32_t count(std::int32_t worker) const {
    const std::int32_t left = n_units - n_whole * kRangeUnits;
    return each * kRangeUnits + (left > worker ? (left - worker - 1) / workers + 1 : 0);
  }
  constexpr std::int32_t n_ranges() const { return (n_units + kRangeUnits - 1) / kRangeUnits; }
};
static_assert(LongDeal(33, 32768).n_whole == 33 && LongDeal(33, 32768).count(0) == 16);
static_assert(LongDeal(33, 4096).n_whole == 0 && LongDeal(33, 4096).count(0) == 2);
static_assert(LongDeal(33, 32768).unit(2, 7) == 23 && LongDeal(33, 32768).unit(2, 9) == 264 + 2 + 33);
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

inline constexpr std::int64_t kLongHeadsShared = kLongHeld * kLoneUnitBytes + kLoneUnitsFixed + kLongHeld * 8;
static_assert(2 * kLongHeadsShared > 228 * 1024);           // a block a multiprocessor,
static_assert(kLongHeadsShared + 68 * 1024 <= 226 * 1024);  // beside the products before it, where those are of Q4_K

constexpr LaunchPlan long_heads_plan(const LongHeadsArgs& args) {
  return {.blocks = std::int64_t{args.of.n_kv_heads} * args.workers,
          .threads = kLongThreads,
          .shared_bytes = kLongHeadsShared};
}
constexpr LaunchPlan long_merge_plan(const LongMergeArgs& args) {
  return {.blocks = std::int64_t{args.n_kv_heads} * args.group * kLongParts, .threads = kUnitWarps * kWarp};
}

int launch_long_heads(const LongHeadsArgs& args, const Stream& stream);
int launch_long_merge(const LongMergeArgs& args, const Stream& stream);

}  // namespace conclave::cuda
