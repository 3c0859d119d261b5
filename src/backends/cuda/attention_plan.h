// attention in f32, for any cache that attention_mma_plan.h does not take: rows (a token and a head) that share a KV
// head, against 64 cached positions at a time.
//
// A unit is 64 positions that begin at a multiple of 64. Per row, in f32, every operation rounded once:
//
//   s[j] = scale * (sum over d of q[d] * k[j,d])     one chain of fused multiply-adds, d ascending
//   m    = max over s[j],  p[j] = exp(s[j] - m)      over what the row sees; p = 0 for what is in no page
//   sum  = sum over j of p[j]                        lanes j mod 8, folded in halves
//   acc  = sum over j of p[j] * v[j]                 one chain of fused multiply-adds, j ascending
//
// and units are merged in ascending order, from m = -infinity, sum = 0, acc = 0:
//
//   m' = max(m, m2);  a = exp(m - m'),  b = exp(m2 - m');  sum = fma(sum2, b, sum * a);  acc = fma(acc2, b, acc * a)
//
// out = acc / sum. A unit in which the row sees nothing is left out; a weight below 2^-126 is 0. Nothing in it depends
// on other rows, on the pages, or on who computes which unit, so a row has the same bits alone, in any batch and in any
// chunk.
//
// Two kernels compute it. `few`: a block takes one token with up to 8 heads. `many`: 64 rows of neighbouring tokens,
// where those belong to one sequence; the tokens of other neighbourhoods are left to `few`. Either a block goes through
// all units of its rows and merges as it goes, or, where that would leave multiprocessors idle, `workers` blocks share
// the units of the same rows, leave each unit's result in scratch, and a third kernel merges. If scratch has no room
// for all units of the longest context, that is done in several passes over parts of the context.
#pragma once

#include <algorithm>

#include "backends/cuda/kv_view_plan.h"
#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

inline constexpr int kUnit = 64;               // positions
inline constexpr int kSlice = 128;             // of d at a time
inline constexpr int kRowFloats = kSlice + 4;  // of a row in shared memory: neighbours start 4 banks apart
inline constexpr int kScoreFloats = kUnit + 4;
inline constexpr int kAttentionFewRows = 8;
inline constexpr int kAttentionManyRows = 64;
inline constexpr int kAttentionFewThreads = 128;
inline constexpr int kAttentionManyThreads = 256;
inline constexpr int kMergeThreads = kSlice;
inline constexpr std::int64_t kManyTokens = 16;  // from here on `many` is worth a launch,
inline constexpr std::int64_t kManySteps = 129;  // and from here on where each may well be of another sequence
inline constexpr std::int64_t kMaxPasses = 8;
inline constexpr std::int64_t kPartialBytes = std::int64_t{256} << 20;
inline constexpr std::int64_t kAttentionMaxBlocks = 1 << 20;

struct AttentionArgs {
  View q;
  View k;
  View v;
  View lengths;
  View seqs;
  View positions;
  View out;
  const std::int32_t* live = nullptr;
  KvPages kv;
  std::int64_t context = 0;  // positions that the page table has room for, at most 2^31
  std::int32_t group = 1;    // heads that share a KV head
  bool vectors = false;      // K and V are 16-bit numbers in whole aligned 16-byte words, K no wider than a slice
  bool early = false;        // of what it reads the op before writes queries, keys and values alone (launch.cuh)
  float scale = 1;
  BankOut bank;  // where rows of `out`, [n_tokens, n_heads * d_v], are left, too: decode as int8, prefill as bf16
  // Results of units first_unit .. first_unit + n_kept - 1 of each row, and what earlier passes have come to.
  bool split = false;
  std::int64_t first_unit = 0;
  std::int64_t n_kept = 0;
  float* unit_acc = nullptr;   // [n_tokens * n_heads][n_kept][d_v]
  float* unit_sum = nullptr;   // [n_tokens * n_heads][n_kept][2]: maximum, sum
  float* state_acc = nullptr;  // [n_tokens * n_heads][d_v]
  float* state_sum = nullptr;  // [n_tokens * n_heads][slices of d_v][2]
};

// How rows are dealt to the blocks of a kernel. An item is (tokens, KV head, heads, slice of d_v, worker).
struct AttentionCut {
  std::int64_t n_groups = 0;  // of tokens
  std::int64_t n_tokens = 1;  // of a group
  std::int32_t n_heads = 1;   // of a block, at most
  std::int64_t head_parts = 1;
  std::int64_t slices = 1;
  std::int64_t workers = 1;
  std::int64_t run = 0;  // few: groups of so many tokens are left to `many` where they are of one sequence; 0: none
};

struct AttentionSizes {
  std::int64_t n_tokens = 0;
  std::int64_t n_heads = 0;
  std::int64_t n_kv_heads = 1;
  std::int64_t d_v = 0;
  std::int64_t context = 0;
  bool decode = false;
};

constexpr std::int64_t slices_of(std::int64_t d) {
  return ceil_div(d, kSlice);
}

// Blocks of `rows` rows: of one token, or of as many as there is room for.
constexpr AttentionCut attention_cut(const AttentionSizes& sizes, std::int64_t rows, bool many) {
  const std::int64_t group = sizes.n_heads / sizes.n_kv_heads;
  const std::int64_t heads = std::min(group, rows);
  AttentionCut cut;
  cut.n_tokens = many ? rows / heads : 1;
  cut.n_groups = ceil_div(sizes.n_tokens, cut.n_tokens);
  cut.n_heads = static_cast<std::int32_t>(heads);
  cut.head_parts = ceil_div(group, heads);
  cut.slices = slices_of(sizes.d_v);
  return cut;
}

struct AttentionPlan {
  bool use_few = false;
  bool use_many = false;
  AttentionCut few;
  AttentionCut many;
  std::int64_t n_units = 0;  // of the longest context
  std::int64_t n_kept = 0;   // 0: blocks merge as they go
};

constexpr std::int64_t items_of(const AttentionCut& cut, std::int64_t n_kv_heads) {
  return cut.n_groups * n_kv_heads * cut.head_parts * cut.slices * cut.workers;
}

constexpr AttentionPlan attention_plan(const AttentionSizes& sizes, int multiprocessors) {
  AttentionPlan plan;
  if (sizes.n_tokens == 0 || sizes.n_heads == 0 || sizes.d_v == 0) return plan;
  plan.use_many = sizes.n_tokens >= kManyTokens;
  plan.few = attention_cut(sizes, kAttentionFewRows, false);
  plan.many = attention_cut(sizes, kAttentionManyRows, true);
  plan.use_few = !plan.use_many || plan.many.n_tokens > 1;
  if (plan.use_many) plan.few.run = plan.many.n_tokens;
  plan.n_units = ceil_div(sizes.context, kUnit);

  const auto workers = [&](const AttentionCut& cut, std::int64_t blocks_each) {
    const std::int64_t wanted = multiprocessors * blocks_each / items_of(cut, sizes.n_kv_heads);
    return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(plan.n_units, 1));
  };
  const std::int64_t few = workers(plan.few, 4);
  const std::int64_t many = workers(plan.many, 2);
  // 64 rows leave as much in scratch as they read of the cache: not for the sake of a second worker.
  if ((plan.use_many ? many - 1 : few) <= 1) return plan;
  const std::int64_t unit_bytes = sizes.n_tokens * sizes.n_heads * (sizes.d_v + 2) * 4;
  const std::int64_t kept = std::min(plan.n_units, kPartialBytes / unit_bytes);
  if (kept == 0 || ceil_div(plan.n_units, kept) > kMaxPasses) return plan;
  plan.n_kept = kept;
  plan.few.workers = std::min(few, kept);
  plan.many.workers = std::min(many, kept);
  return plan;
}

// Floats of scratch: [unit_acc | unit_sum | state_acc | state_sum].
struct AttentionScratch {
  std::int64_t unit_sum = 0;
  std::int64_t state_acc = 0;
  std::int64_t state_sum = 0;
  std::int64_t total = 0;
};
constexpr AttentionScratch attention_scratch(const AttentionSizes& sizes, const AttentionPlan& plan) {
  AttentionScratch at;
  if (plan.n_kept == 0) return at;
  const std::int64_t rows = sizes.n_tokens * sizes.n_heads;
  at.unit_sum = ceil_div(rows * plan.n_kept * sizes.d_v, 64) * 64;
  at.state_acc = at.unit_sum + ceil_div(rows * plan.n_kept * 2, 64) * 64;
  at.state_sum = at.state_acc + ceil_div(rows * sizes.d_v, 64) * 64;
  at.total = at.state_sum + rows * slices_of(sizes.d_v) * 2;
  return at;
}

// What a block has in shared memory, in bytes: q, a slice of K or V, scores, rows' factors and ends, where keys and
// values of this unit and of the next lie.
constexpr std::int64_t attention_shared(int rows) {
  return 4 * (std::int64_t{rows} * kRowFloats + kUnit * kRowFloats + std::int64_t{rows} * kScoreFloats + 2 * rows) +
         8 * (std::int64_t{rows} + 4 * kUnit);
}
static_assert(attention_shared(kAttentionFewRows) < 48 * 1024);
static_assert(2 * (attention_shared(kAttentionManyRows) + 1024) < 227 * 1024);

constexpr LaunchPlan attention_launch(const AttentionCut& cut, std::int64_t n_kv_heads, bool many) {
  return {.blocks = std::min(items_of(cut, n_kv_heads), kAttentionMaxBlocks),
          .threads = many ? kAttentionManyThreads : kAttentionFewThreads,
          .shared_bytes = attention_shared(many ? kAttentionManyRows : kAttentionFewRows)};
}
constexpr LaunchPlan attention_merge_launch(const AttentionSizes& sizes) {
  const std::int64_t items = sizes.n_tokens * sizes.n_heads * slices_of(sizes.d_v);
  return {.blocks = std::min(items, kAttentionMaxBlocks), .threads = kMergeThreads};
}

inline constexpr AttentionSizes kOneTokenOf128{1, 32, 4, 128, 32768};
static_assert(attention_plan(kOneTokenOf128, 132).few.workers == 132);
static_assert(attention_plan(kOneTokenOf128, 132).n_kept == 512 && !attention_plan(kOneTokenOf128, 132).use_many);
static_assert(attention_plan({512, 32, 4, 128, 32768}, 132).many.n_tokens == 8);
static_assert(attention_plan({512, 32, 4, 128, 32768}, 132).n_kept == 0);
static_assert(attention_plan({64, 1, 1, 8, 64}, 132).many.n_tokens == 64);
static_assert(attention_plan({0, 1, 1, 8, 64}, 132).few.n_groups == 0);

int launch_attention(const AttentionArgs& args, const AttentionPlan& plan, const Stream& stream);
int launch_attention_merge(const AttentionArgs& args, const Stream& stream);

}  // namespace conclave::cuda
