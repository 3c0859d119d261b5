// attention on tensor cores: caches of f16 in whole aligned 16-byte words, d_k and d_v multiples of 16 up to 256.
//
// A unit is 64 positions that begin at a multiple of 64, a range 8 units that begin at a multiple of 512. Per row (a
// token and a head); mma is the matrix instruction for f16, summed in f32, with 16 elements of the sum at a time:
//
//   x    = q * 2^e                       exact; the largest |x| of the row lies in [2^14, 2^15)
//   hi   = f16(x),  lo = f16(x - hi)     22 bits of x
//   y[j] = (sum of hi k[j] + sum of lo k[j]) * c      two chains of mma over d ascending, an addition, a product;
//                                                     c = f32(f32(scale * log2 e) * 2^-e)
//   m    = max over y[j],  p[j] = f16(2^(y[j] - m))   over what the row sees; p = 0 for what it does not
//   sum  = sum over j of p[j],  acc = sum over j of p[j] * v[j]      chains of mma over j ascending
//
// The weights that are summed are the rounded ones: out is a mean of values whatever the rounding. An mma is given
// zeros for the values that the row does not see, so that nothing of them counts, be it infinite. From m = -infinity,
// sum = 0, acc = 0 the units of a range are merged in ascending order, and then ranges in the same way:
//
//   m' = max(m, m2);  a = 2^(m - m'),  b = 2^(m2 - m');  sum = fma(sum2, b, sum * a);  acc = fma(acc2, b, acc * a)
//
// out = acc / sum. A unit or a range in which the row sees nothing is left out. 2^x is the GPU's own (mma.cuh). An
// infinity in a key that the row sees makes it NaN. Nothing in it depends on other rows, on the pages, or on who
// computes which unit, so a row has the same bits alone, in any batch and in any chunk.
//
// `few`: a block takes one token with up to 16 heads of a KV head, its warps share each unit. `many`: 16 rows a warp, of
// neighbouring tokens, where those belong to one sequence; the tokens of other neighbourhoods are left to `few`. Two
// kernels take the place of `few` where tokens are so few that blocks would be idle. `apart`: the units of a range are
// those of a cluster of blocks, whose warps share them; soonest done with a short context. `units`: each warp has units by
// itself; done soonest with a long one. In all of them, `workers` blocks or clusters share the ranges of the same rows,
// leave each range's result in scratch, and the one that is done last merges.
#pragma once

#include "backends/cuda/attention_plan.h"

namespace conclave::cuda {

inline constexpr int kRangeUnits = 8;
inline constexpr int kRange = kRangeUnits * kUnit;  // positions
inline constexpr int kTileRows = 16;                // of queries in a tile
inline constexpr int kUnitWarps = 8;                // `few`: warps that share a unit
inline constexpr int kUnitStages = 3;               // `few`: units of K and of V in shared memory at once
inline constexpr int kApartCopies = 5;              // `apart`: the same, each K and each V counted
inline constexpr int kApartChunkWidth = 128;        // `apart`: d_v of which a block has whole chunks of int8
inline constexpr int kHalfUnit = kUnit / 2;
inline constexpr int kUnitSlots = 3;  // `units`: halves of K or V in shared memory at once, of each warp
inline constexpr std::int64_t kUnitsPool = std::int64_t{16} << 32;  // `units`: bytes of K or V, at most
inline constexpr std::int64_t kUnitsContext = 8192;                 // and more positions than these to have room for

inline constexpr int kWeightPieces = kUnit / 8 + 1;  // `few`: of a row of weights; eight rows lie in different banks

// Rows of K and V as kernels are made for: the next of 64, 128, 256; 0: too long.
constexpr int mma_width(std::int64_t d_k, std::int64_t d_v) {
  const std::int64_t d = std::max(d_k, d_v);
  if (d_k % 16 != 0 || d_v % 16 != 0 || d_k == 0 || d_v == 0 || d > 256) return 0;
  return d <= 64 ? 64 : d <= 128 ? 128 : 256;
}
static_assert(mma_width(64, 64) == 64 && mma_width(80, 80) == 128 && mma_width(192, 128) == 256);
static_assert(mma_width(72, 64) == 0 && mma_width(64, 272) == 0);

constexpr int many_warps(int width) {
  return width <= 128 ? 8 : 4;
}
constexpr int many_tile_rows(int width) {
  return many_warps(width) * kTileRows;
}
// Units of K and V in shared memory at once.
constexpr int many_stages(int width) {
  return width <= 128 ? 2 : 1;
}
// Whether a warp of `many` keeps its queries in registers; their place is then free for totals.
constexpr bool keeps_queries(int width) {
  return width <= 128;
}

// Bytes: queries; units; weights; where the rows of four units lie; maxima and one number per row; which
// rows they are.
constexpr std::int64_t few_attention_shared(int width) {
  return kTileRows * 4 * width + kUnitStages * 2 * kUnit * 2 * width + kTileRows * kWeightPieces * 16 + 4 * kUnit * 16 +
         kTileRows * (kUnitWarps + 1) * 4 + 48;
}
// Bytes of what a unit comes to.
constexpr std::int64_t apart_result_bytes(int width) {
  return kTileRows * ((width + 8) * 4 + 8);
}
// Bytes: queries; units; weights; places; two results with two numbers per row; maxima and one number per row; a flag,
// which rows they are.
constexpr std::int64_t apart_attention_shared(int width) {
  return kTileRows * 4 * width + kApartCopies * kUnit * 2 * width + kTileRows * kWeightPieces * 16 + 4 * kUnit * 16 +
         2 * apart_result_bytes(width) + kTileRows * (kUnitWarps + 1) * 4 + 48;
}
// That run on a multiprocessor at once.
constexpr int apart_blocks(int width) {
  return width <= 128 ? 2 : 1;
}
// Bytes: queries; halves of units; places; two numbers per row of each unit; one number per row; a flag.
constexpr std::int64_t units_attention_shared(int width) {
  return kTileRows * 4 * width + kRangeUnits * (kUnitSlots * kHalfUnit * 2 * width + kUnit * 8 + kTileRows * 8) +
         kTileRows * 4 + 16;
}
// Bytes: units; queries, and totals with two numbers per row for each of its four threads; where the rows of four units
// lie; what each row sees; which rows they are.
constexpr std::int64_t many_attention_shared(int width) {
  const std::int64_t tiles =
      std::int64_t{keeps_queries(width) ? 1 : 2} * many_warps(width) * (kTileRows * width + 128) * 4;
  return std::int64_t{many_stages(width)} * 2 * kUnit * 2 * width + tiles + 4 * kUnit * 16 + many_tile_rows(width) * 4 +
         48;
}
static_assert(2 * (few_attention_shared(128) + 1024) <= 228 * 1024);  // two blocks on a multiprocessor
static_assert(2 * (apart_attention_shared(128) + 1024) <= 228 * 1024 && apart_attention_shared(256) <= 227 * 1024);
static_assert(units_attention_shared(128) <= 227 * 1024);
static_assert(few_attention_shared(128) <= 163 * 1024 && many_attention_shared(128) <= 163 * 1024);
static_assert(few_attention_shared(256) <= 227 * 1024 && many_attention_shared(256) <= 227 * 1024);

enum class ByToken { few, apart, units };
struct MmaPlan {
  bool use_few = false;
  bool use_many = false;
  ByToken by = ByToken::few;  // `few`, or what takes its place with its cut and launch
  AttentionCut few;
  AttentionCut many;
  int width = 0;
  std::int64_t n_ranges = 0;  // of the longest context
  LaunchPlan few_launch;
  LaunchPlan many_launch;
};

// What the blocks of one token and its heads leave for the last of them.
struct KeptRanges {
  float* acc = nullptr;             // [n_tokens * n_heads][n_ranges][d_v]
  float* sums = nullptr;            // [n_tokens * n_heads][n_ranges][2]: maximum, sum
  std::int32_t* tickets = nullptr;  // [n_tokens * n_heads], 0 between runs: how many are done
  std::int64_t n_ranges = 0;
};

// What a GPU has for the kernels in place of `few`.
struct ByTokenRoom {
  int clusters = 0;              // of `apart`, that run at once
  std::int64_t units_bytes = 0;  // of shared memory that a block of `units` may have; 0: it does not take the cache
};
constexpr MmaPlan mma_plan(const AttentionSizes& sizes, int width, int multiprocessors, const ByTokenRoom& room) {
  MmaPlan plan;
  plan.width = width;
  if (sizes.n_tokens == 0 || sizes.n_heads == 0) return plan;
  plan.use_many = sizes.n_tokens >= (sizes.decode ? kManySteps : kManyTokens);
  plan.few = attention_cut(sizes, kTileRows, false);
  plan.many = attention_cut(sizes, many_tile_rows(width), true);
  plan.few.slices = plan.many.slices = 1;
  plan.use_few = !plan.use_many || plan.many.n_tokens > 1;
  if (plan.use_many) plan.few.run = plan.many.n_tokens;
  plan.n_ranges = ceil_div(sizes.context, kRange);

  const std::int64_t alone = sizes.n_tokens * sizes.n_kv_heads * plan.few.head_parts;
  const bool units = !plan.use_many && alone <= multiprocessors && sizes.context > kUnitsContext &&
                     units_attention_shared(width) <= room.units_bytes;
  const std::int64_t blocks_each = units ? 1 : 4;  // `few`: two at a time, twice
  const std::int64_t kept_bytes = sizes.n_tokens * sizes.n_heads * plan.n_ranges * (sizes.d_v + 2) * 4;
  if (kept_bytes <= kPartialBytes) {
    const auto workers = [&](const AttentionCut& cut, std::int64_t blocks) {
      const std::int64_t wanted = blocks / items_of(cut, sizes.n_kv_heads);
      return std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(plan.n_ranges, 1));
    };
    plan.few.workers = workers(plan.few, multiprocessors * blocks_each);
    plan.many.workers = workers(plan.many, multiprocessors);
  }
  // There is a cluster for each item.
  if (!units && !plan.use_many && alone <= room.clusters && sizes.context > kUnit && kept_bytes <= kPartialBytes) {
    plan.by = ByToken::apart;
    plan.few.workers = std::clamp<std::int64_t>(room.clusters / alone, 1, plan.n_ranges);
    plan.few_launch = {.blocks = alone * plan.few.workers * kRangeUnits,
                       .threads = kUnitWarps * kWarp,
                       .shared_bytes = apart_attention_shared(width),
                       .cluster = kRangeUnits};
    return plan;
  }
  // Where `many` takes most, the blocks of `few` have nothing to do but to see that: fewer of them, in turns.
  const std::int64_t most = plan.use_many ? 2 * blocks_each * multiprocessors : kAttentionMaxBlocks;
  plan.few_launch = {.blocks = std::min(items_of(plan.few, sizes.n_kv_heads), most),
                     .threads = kUnitWarps * kWarp,
                     .shared_bytes = units ? units_attention_shared(width) : few_attention_shared(width)};
  if (units) plan.by = ByToken::units;
  plan.many_launch = {.blocks = std::min(items_of(plan.many, sizes.n_kv_heads), kAttentionMaxBlocks),
                      .threads = many_warps(width) * kWarp,
                      .shared_bytes = many_attention_shared(width)};
  return plan;
}

// Floats of scratch: [acc | sums].
struct MmaScratch {
  std::int64_t sums = 0;
  std::int64_t total = 0;
};
constexpr MmaScratch mma_scratch(const AttentionSizes& sizes, const MmaPlan& plan) {
  if (plan.few.workers <= 1 && plan.many.workers <= 1) return {};
  const std::int64_t kept = sizes.n_tokens * sizes.n_heads * plan.n_ranges;
  return {.sums = kept * sizes.d_v, .total = kept * (sizes.d_v + 2)};
}

inline constexpr ByTokenRoom kLargeRoom{.clusters = 32, .units_bytes = 227 * 1024};
static_assert(mma_plan(kOneTokenOf128, 128, 132, {}).few_launch.blocks == 256);
static_assert(mma_plan(kOneTokenOf128, 128, 132, {.clusters = 32}).few.workers == 8);
static_assert(mma_plan(kOneTokenOf128, 128, 132, {.clusters = 32}).few_launch.blocks == 256);
static_assert(mma_plan(kOneTokenOf128, 128, 132, kLargeRoom).few.workers == 33);
static_assert(mma_plan({8, 32, 4, 128, 8192}, 128, 132, kLargeRoom).few_launch.cluster == kRangeUnits);
static_assert(mma_plan({9, 32, 4, 128, 8192}, 128, 132, kLargeRoom).few_launch.cluster == 1);
static_assert(mma_plan({33, 32, 4, 128, 32768, true}, 128, 132, kLargeRoom).by == ByToken::units);
static_assert(mma_plan({34, 32, 4, 128, 32768, true}, 128, 132, kLargeRoom).by == ByToken::few);
static_assert(mma_plan({512, 32, 4, 128, 32768}, 128, 132, kLargeRoom).many.n_tokens == 16);
static_assert(mma_plan({512, 32, 4, 128, 32768}, 128, 132, kLargeRoom).few.workers == 1);
static_assert(mma_plan({0, 1, 1, 16, 64}, 64, 132, kLargeRoom).few_launch.blocks == 0);
static_assert(mma_plan({16, 32, 4, 128, 32768}, 128, 132, kLargeRoom).use_many);
static_assert(!mma_plan({128, 32, 4, 128, 32768, true}, 128, 132, kLargeRoom).use_many);

int launch_attention_few(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept, const Stream& stream);
// How many clusters of `apart` run at once on the current GPU; 0: it has none.
int attention_clusters(int width);
int launch_attention_apart(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept,
                           const Stream& stream);
int launch_attention_units(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept,
                           const Stream& stream);
int launch_attention_many(const AttentionArgs& args, const MmaPlan& plan, const KeptRanges& kept, const Stream& stream);

}  // namespace conclave::cuda
