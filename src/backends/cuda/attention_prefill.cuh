// Attention of prompts: what a block has in shared memory, which rows it takes, how queries get there, and softmax.
// attention_prefill_plan.h has the arithmetic.
#pragma once

#include "backends/cuda/attention_items.cuh"
#include "backends/cuda/attention_prefill_plan.h"
#include "backends/cuda/attention_wgmma.cuh"

namespace conclave::cuda {

// Bytes to a 16-byte piece of a row, in a tile of `rows` rows.
template <int rows>
__device__ __forceinline__ int turned_piece(int row, int piece) {
  return piece / 8 * (rows * 128) + row * 128 + ((piece ^ row) & 7) * 16;
}

// Units one after another take the stages in turn.
template <int kStages>
struct StageCount {
  unsigned n = 0;
  __device__ unsigned place() const { return n % kStages; }
  __device__ unsigned parity() const { return n / kStages % 2; }
};

// Rows of one sequence, and the block's ranges of what they see.
struct PrefillRun {
  Rows rows;
  unsigned least;   // each of them sees so many positions
  unsigned most;    // none sees more
  int first_range;  // and every `workers` further on
  int workers;

  __device__ int n_units() const { return static_cast<int>((most + (kPrefillUnit - 1)) / kPrefillUnit); }
  __device__ int n_ranges() const { return (n_units() + kPrefillRangeUnits - 1) / kPrefillRangeUnits; }
  // The block's units. n_units() or more: there is none.
  __device__ int first_unit() const { return first_range * kPrefillRangeUnits; }
  __device__ int unit_after(int unit) const {
    return unit + 1 + ((unit + 1) % kPrefillRangeUnits == 0 ? (workers - 1) * kPrefillRangeUnits : 0);
  }
  // Whether each row sees all of a unit, as far as it is there.
  __device__ bool all_see(int unit) const { return static_cast<unsigned>(unit) * kPrefillUnit + kPrefillUnit <= least; }
};

template <int d>
struct PrefillShared {
  static constexpr int kStages = prefill_stages(d);
  static constexpr int kUnitBytes = kPrefillUnit * 2 * d;

  std::byte queries[kPrefillGroups][kPrefillGroupRows * 2 * d];
  std::byte keys[kStages][kUnitBytes];
  std::byte values[kStages][kUnitBytes];
  float4 totals[kPrefillGroups][d / 8 * kPrefillGroup];  // accumulators of the ranges so far, by thread
  unsigned ends[kPromptRows];                            // what each row sees
  uint4 there[kStages];                                  // positions of the unit, a bit each
  uint4 changed[kStages];           // whether values that are no numbers have been replaced; a word from each warp
  std::uint64_t has_keys[kStages];  // copied
  std::uint64_t no_keys[kStages];   // used
  std::uint64_t has_values[kStages];
  std::uint64_t no_values[kStages];
  int last[kPrefillGroups];
};

// From token `first` on, up to `end`: how many are of one sequence, and what they see. By whole warps, each for itself.
__device__ __forceinline__ int find_run(const AttentionArgs& args, std::int64_t first, std::int64_t end,
                                        PrefillRun& run) {
  run.rows.first_token = first;
  run.rows.seq = int_at(args.seqs, first);
  run.least = 0xFFFFFFFFU;
  run.most = 0;
  int n = 0;
  for (int more = kWarp; more == kWarp; n += more) {
    const std::int64_t token = first + n + threadIdx.x % kWarp;
    const bool same = token < end && int_at(args.seqs, token) == run.rows.seq;
    const unsigned others = ~__ballot_sync(kAllLanes, same);
    more = others == 0 ? kWarp : __ffs(static_cast<int>(others)) - 1;
    if (static_cast<int>(threadIdx.x % kWarp) < more) {
      const auto sees = static_cast<unsigned>(visible_end(args, token));
      run.least = min(run.least, sees);
      run.most = max(run.most, sees);
    }
  }
  run.least = __reduce_min_sync(kAllLanes, run.least);
  run.most = __reduce_max_sync(kAllLanes, run.most);
  return n;
}

// The runs of which the block has anything. Later tokens, which see more, come first, and blocks take turns in who gets
// the most. `split`: workers share the ranges of a run, else the runs.
template <class Each>
__device__ __forceinline__ void for_each_run(const AttentionArgs& args, const AttentionCut& cut, bool split,
                                             const Each& each) {
  const std::int64_t n_live = live_rows(args.live, args.q.dims[0]);
  // Fewer than 2^31: rows of queries are.
  const auto parts = static_cast<unsigned>(cut.head_parts);
  const auto workers = static_cast<unsigned>(cut.workers);
  const unsigned per_group = static_cast<unsigned>(args.k.dims[2]) * parts;
  const unsigned per_worker = static_cast<unsigned>(cut.n_groups) * per_group;
  bool back = false;
#pragma unroll 1
  for (unsigned first = 0; first < workers * per_worker; first += gridDim.x, back = !back) {
    const unsigned item = first + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    if (item >= workers * per_worker) continue;
    const unsigned worker = item / per_worker;
    const unsigned nth = item - worker * per_worker;
    const unsigned head_part = nth % per_group;
    PrefillRun run;
    run.rows.kv_head = static_cast<std::int32_t>(head_part / parts);
    const std::int32_t head = static_cast<std::int32_t>(head_part % parts) * cut.n_heads;
    run.rows.n_heads = min(cut.n_heads, args.group - head);
    run.rows.first_head = static_cast<std::int64_t>(run.rows.kv_head) * args.group + head;
    std::int64_t token = (cut.n_groups - 1 - nth / per_group) * cut.n_tokens;
    const std::int64_t end = min(token + cut.n_tokens, n_live);
#pragma unroll 1
    for (unsigned whose = 0; token < end; whose = whose + 1 == workers ? 0 : whose + 1) {
      const int n = find_run(args, token, end, run);
      token += n;
      run.rows.n = n * run.rows.n_heads;
      // Worker `whose` has the first range.
      run.first_range = static_cast<int>(worker < whose ? worker + workers - whose : worker - whose);
      run.workers = split ? static_cast<int>(workers) : 1;
      if (run.first_range == 0 || (split && run.first_unit() < run.n_units())) each(run);
    }
  }
}

// The 16 rows of a warp to a tile of its warpgroup. `first`: of the block's rows, the warpgroup's first. Returns, for
// the lane's two rows, what scores are multiplied by.
template <int d>
__device__ __forceinline__ float2 put_queries(const AttentionArgs& args, const PrefillScale& scale, const Rows& rows,
                                              int first, std::byte* tile) {
  constexpr int kAtOnce = 8;
  constexpr int kEach = d / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp_row = static_cast<int>(threadIdx.x) % kPrefillGroup / kWarp * 16;
  // A row that is none is the last one again.
  const int own = min(first + warp_row + lane % 16, rows.n - 1);
  const auto own_at = reinterpret_cast<unsigned long long>(row_of(args.q, rows.token(own), rows.head(own)));
  const bool vectors = args.q.type == DType::f32 && __all_sync(kAllLanes, own_at % (4 * kEach) == 0) != 0;
  float by[2] = {1, 1};
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    float x[kAtOnce][kEach];
    const auto load = [&](const auto& each) {
#pragma unroll
      for (int r = 0; r < kAtOnce; ++r) {
        const unsigned long long at = __shfl_sync(kAllLanes, own_at, part * kAtOnce + r);
        each(reinterpret_cast<const std::byte*>(at), x[r]);
      }
    };
    if (vectors) {
      load([&](const std::byte* row, float* to) {
        const auto* pairs = reinterpret_cast<const float2*>(row + 4 * kEach * lane);
        if constexpr (kEach == 4) {
          const float4 four = *reinterpret_cast<const float4*>(pairs);
          to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
        } else {
          to[0] = pairs->x, to[1] = pairs->y;
        }
      });
    } else {
      load([&](const std::byte* row, float* to) {
#pragma unroll
        for (int i = 0; i < kEach; ++i) to[i] = load_float(args.q.type, row, kEach * lane + i);
      });
    }
#pragma unroll
    for (int r = 0; r < kAtOnce; ++r) {
      float largest = 0;
#pragma unroll
      for (int i = 0; i < kEach; ++i) largest = fmaxf(largest, fabsf(x[r][i]));
      // None is negative: their bits have the same order.
      largest = __uint_as_float(__reduce_max_sync(kAllLanes, __float_as_uint(largest)));
      // Exponents as f32 stores them: the largest gets 127 + 13. An infinity stays one.
      const unsigned grown = min(267U - (__float_as_uint(largest) >> 23U), 253U);
      const float grow = __uint_as_float(grown << 23U);
      std::byte* to = tile + turned_piece<kPrefillGroupRows>(warp_row + part * kAtOnce + r, kEach * lane / 8);
#pragma unroll
      for (int i = 0; i < kEach; i += 2) {
        *reinterpret_cast<__half2*>(to + (kEach * lane + i) % 8 * 2) =
            __floats2half2_rn(x[r][i] * grow * scale.factor, x[r][i + 1] * grow * scale.factor);
      }
      if (lane / 4 == r) by[part] = fmaxf(scale.power * __uint_as_float((254U - grown) << 23U), 0x1p-126F);
    }
  }
  return {by[0], by[1]};
}

// What the lane's two rows have come to in a range.
struct PrefillState {
  static constexpr float kMost = 0x1.fffffep127F;

  float c[2];
  float max[2];
  float sum[2];   // of the lane's columns
  unsigned seen;  // bit r: row r sees something

  __device__ __forceinline__ explicit PrefillState(float2 by) : c{by.x, by.y} { start(); }
  __device__ __forceinline__ void start() {
    max[0] = max[1] = -kMost;
    sum[0] = sum[1] = 0;
    seen = 0;
  }
  __device__ __forceinline__ float base(int r) const { return fminf(fmaf(-max[r], c[r], 7.0F), kMost); }
};

// Scores that a row does not see are -infinity. `ends`: what the lane's first row sees, and 8 further on what its
// second does.
__device__ __forceinline__ void hide_unseen(float (&s)[64], PrefillState& state, const unsigned* ends, unsigned begin,
                                            const uint4& there) {
  const unsigned words[4] = {there.x, there.y, there.z, there.w};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const unsigned sees = ends[8 * r];
    const int end = sees > begin ? static_cast<int>(min(sees - begin, unsigned{kPrefillUnit})) : 0;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int n = end - 32 * q;
      unsigned bits = words[q] & (n >= 32 ? 0xFFFFFFFFU : n <= 0 ? 0U : (1U << n) - 1);
      state.seen |= bits != 0 ? 1U << r : 0U;
      bits >>= threadIdx.x % 4 * 2;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if ((bits >> (i / 2 * 8 + i % 2) & 1U) == 0) s[16 * q + i / 2 * 4 + 2 * r + i % 2] = -INFINITY;
      }
    }
  }
}

// Scores to weights. Returns what the rows' sums so far are multiplied by.
__device__ __forceinline__ float2 weigh(float (&s)[64], PrefillState& state) {
  float by[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float base_before = state.base(r);
    float& max = state.max[r];
#pragma unroll
    for (int n = 0; n < 16; ++n) max = fmaxf(max, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
    const float base = state.base(r);
    by[r] = power_of_two(base - base_before);
    float sums[2] = {0, 0};
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& p = s[4 * n + 2 * r + i];
        p = power_of_two(fmaf(p, state.c[r], base));
        sums[i] = sums[i] + p;
      }
    }
    state.sum[r] = fmaf(state.sum[r], by[r], sums[0] + sums[1]);
  }
  return {by[0], by[1]};
}

}  // namespace conclave::cuda
