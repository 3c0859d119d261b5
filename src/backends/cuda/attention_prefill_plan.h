// attention of prompts on Hopper: caches of f16 in whole aligned 16-byte words, d_k = d_v = 64 or 128. An arithmetic of
// its own, for the matrix instruction of warpgroups (wgmma).
//
// A unit is 128 positions that begin at a multiple of 128. Per row (a token and a head); wgmma sums in f32, 16 elements
// at a time:
//
//   x    = f16(f * (q * 2^e))           the largest |q * 2^e| of the row lies in [2^13, 2^14); f in [1, 2)
//   s[j] = sum of x k[j]                a chain of wgmma over d ascending; s[j] c is the score times log2 e
//   c    = 2^(g - e)                    f * 2^g = f32(scale * log2 e); not below 2^-126
//
// and from m = -2^128 (almost), b = its base, sum = 0, acc = 0, the units of a range in ascending order:
//
//   m'   = max(m, s[j])                 over what the row sees
//   b'   = 7 - m' c                     rounded once, finite
//   p[j] = 2^(s[j] c + b')              0 for what the row does not see
//   a    = 2^(b' - b)
//   sum  = sum * a + sum over j of p[j]            in f32, four lanes apart
//   acc  = acc * a + sum over j of f16(p[j]) v[j]  a chain of wgmma over j ascending
//
// A range is 16 units that begin at a multiple of 2048. Each range begins anew; ranges are merged in ascending order,
// as attention_mma_plan.h has it, with -b' for a maximum. out = acc * (1 / sum).
//
// That c is a power of two keeps s[j] c exact, so that the largest score has no error of its own however large it is;
// weights go up to 2^7, not 1, so that f16 has small ones too, and rounding of b' lets none be larger than 2^14. A unit
// in which the row sees nothing leaves it as it is: a = 1, p = 0. Nothing in it depends on other rows, so a row has the
// same bits alone, in any batch and in any chunk. For that, values that are no numbers are zeros to the matrix
// instruction where not all rows of a block see them; rows that do get them one by one.
//
// A block has two warpgroups that multiply, 64 rows each, and one that copies units ahead of them. Its rows are of one
// sequence and one KV head: of a group of tokens with several sequences, one run of tokens after another. Where that
// leaves multiprocessors idle, `workers` blocks share the ranges of the same rows, leave each range's result in
// scratch, and the one that is done last merges.
#pragma once

#include "backends/cuda/attention_mma_plan.h"

namespace conclave::cuda {

inline constexpr int kPrefillUnit = 128;  // positions
inline constexpr int kPrefillRangeUnits = 16;
inline constexpr int kPrefillGroup = 128;  // threads that multiply, or copy, together
inline constexpr int kPrefillGroups = 2;   // that multiply
inline constexpr int kPrefillGroupRows = 64;
inline constexpr int kPromptRows = kPrefillGroups * kPrefillGroupRows;
inline constexpr int kPrefillThreads = (kPrefillGroups + 1) * kPrefillGroup;

// The same for every batch of a model.
constexpr bool prefill_attention_fits(std::int64_t d_k, std::int64_t d_v) {
  return d_k == d_v && (d_k == 64 || d_k == 128);
}

// Units of K, and of V, in shared memory at once.
constexpr int prefill_stages(int d) {
  return d == 128 ? 2 : 4;
}
// Bytes: queries; units; totals; what rows see; which positions of each unit are there, which have been changed;
// barriers; two numbers. The first begins at a multiple of 1024.
constexpr std::int64_t prefill_attention_shared(int d) {
  const std::int64_t stages = prefill_stages(d);
  return 1024 + kPromptRows * 2 * d + stages * 2 * (kPrefillUnit * 2 * d) + kPromptRows * (4 * d + 4) +
         stages * (2 * 16 + 4 * 8) + 16;
}
static_assert(prefill_attention_shared(128) <= 227 * 1024 && prefill_attention_shared(64) <= 227 * 1024);

struct PrefillScale {
  float factor = 1;  // f
  float power = 1;   // 2^g
};

struct PrefillPlan {
  AttentionCut cut;
  LaunchPlan launch;
  PrefillScale scale;
  int d = 0;
  std::int64_t n_ranges = 0;  // of the longest context; 0: `workers` share runs, not ranges
};

constexpr PrefillPlan prefill_plan(const AttentionSizes& sizes, int multiprocessors) {
  PrefillPlan plan;
  plan.d = static_cast<int>(sizes.d_v);
  if (sizes.n_tokens == 0 || sizes.n_heads == 0) return plan;
  plan.cut = attention_cut(sizes, kPromptRows, true);
  plan.cut.slices = 1;
  const std::int64_t ranges = ceil_div(sizes.context, kPrefillRangeUnits * kPrefillUnit);
  const std::int64_t kept_bytes = sizes.n_tokens * sizes.n_heads * ranges * (sizes.d_v + 2) * 4;
  const std::int64_t wanted = multiprocessors / items_of(plan.cut, sizes.n_kv_heads);
  if (wanted > 1 && ranges > 1 && kept_bytes <= kPartialBytes) plan.n_ranges = ranges;
  const std::int64_t runs = std::min(plan.cut.n_tokens, sizes.n_tokens);
  plan.cut.workers = std::clamp<std::int64_t>(wanted, 1, std::max(runs, plan.n_ranges));
  plan.launch = {.blocks = std::min<std::int64_t>(items_of(plan.cut, sizes.n_kv_heads), multiprocessors),
                 .threads = kPrefillThreads,
                 .shared_bytes = prefill_attention_shared(plan.d)};
  return plan;
}
static_assert(prefill_plan({2048, 32, 4, 128, 32768}, 132).cut.n_tokens == 16);
static_assert(prefill_plan({2048, 32, 4, 128, 32768}, 132).launch.blocks == 132);
static_assert(prefill_plan({2048, 32, 4, 128, 32768}, 132).n_ranges == 0);
static_assert(prefill_plan({16, 32, 4, 128, 128}, 132).cut.workers == 16);
static_assert(prefill_plan({1, 32, 4, 128, 32768}, 132).launch.blocks == 64);
static_assert(prefill_plan({0, 1, 1, 64, 64}, 132).launch.blocks == 0);

// Floats of scratch: [acc | sums].
constexpr MmaScratch prefill_scratch(const AttentionSizes& sizes, const PrefillPlan& plan) {
  const std::int64_t kept = sizes.n_tokens * sizes.n_heads * plan.n_ranges;
  return {.sums = kept * sizes.d_v, .total = kept * (sizes.d_v + 2)};
}

PrefillScale prefill_scale(float scale);

// Whether the kernel has a body: it is of sm_90a alone.
bool attention_prefill_built();
int launch_attention_prefill(const AttentionArgs& args, const PrefillPlan& plan, const KeptRanges& kept,
                             const Stream& stream);

}  // namespace conclave::cuda
