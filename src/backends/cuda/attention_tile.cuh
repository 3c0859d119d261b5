// Rows of queries against one unit of the cache, in shared memory: how a block's threads share the work.
#pragma once

#include "backends/cuda/attention_rows.cuh"

namespace conclave::cuda {

inline constexpr int kRowLanes = 4;  // lanes of a warp in products: 4 rows by 8 keys, or by 8 times four d
inline constexpr int kColumnLanes = 8;

// How threads share products. A thread has rows_each rows, by keys_each keys for scores, by 4 * fours_each of d for
// values. Neighbouring lanes have neighbouring rows and keys, which in shared memory lie in different banks.
template <int rows_each, int row_warps, int column_warps>
struct Shape {
  static constexpr int kRowsEach = rows_each;
  static constexpr int kWarps = row_warps * column_warps;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kWarpRows = kRowLanes * rows_each;  // of a warp
  static constexpr int kRows = row_warps * kWarpRows;
  static constexpr int kKeysEach = kUnit / (column_warps * kColumnLanes);
  static constexpr int kFoursEach = kSlice / (column_warps * kColumnLanes * 4);
  // Keys of the next unit are asked for before this one's values are added, where there are registers to hold them.
  static constexpr bool kAskEarly = rows_each <= 2;
  // Softmax: eight lanes have a row.
  static constexpr int kSoftRows = kWarps * kRowLanes;
  static constexpr int kSoftPasses = (kRows + kSoftRows - 1) / kSoftRows;

  int lane = static_cast<int>(threadIdx.x) % kWarp;
  int warp = static_cast<int>(threadIdx.x) / kWarp;
  int first_row = warp / column_warps * kWarpRows;  // of the warp
  int column = warp % column_warps;

  __device__ int row(int i) const { return first_row + i * kRowLanes + lane / kColumnLanes; }
  __device__ int key(int i) const { return (column * kKeysEach + i) * kColumnLanes + lane % kColumnLanes; }
  __device__ int d(int i) const { return ((column * kFoursEach + i) * kColumnLanes + lane % kColumnLanes) * 4; }
  __device__ int soft_row(int pass) const { return pass * kSoftRows + warp * kRowLanes + lane / kColumnLanes; }
};
using Few = Shape<2, 1, 4>;
using Many = Shape<4, 4, 2>;
static_assert(Few::kRows == kAttentionFewRows && Few::kThreads == kAttentionFewThreads && Few::kKeysEach == 2 &&
              Few::kFoursEach == 1);
static_assert(Many::kRows == kAttentionManyRows && Many::kThreads == kAttentionManyThreads && Many::kKeysEach == 4);
static_assert(Many::kFoursEach == 2 && Many::kSoftPasses == 2 && Few::kSoftPasses == 1);

template <class S>
struct Shared {
  float q[S::kRows * kRowFloats];
  float kv[kUnit * kRowFloats];
  float p[S::kRows * kScoreFloats];  // scores, then weights
  float2 factors[S::kRows];  // of what has been merged so far, of the unit; negative: it has nothing for the row
  long long ends[S::kRows];  // what each row sees; -1: there is no such row
  long long k_at[2][kUnit];
  long long v_at[2][kUnit];
};
static_assert(sizeof(Shared<Few>) == attention_shared(kAttentionFewRows));
static_assert(sizeof(Shared<Many>) == attention_shared(kAttentionManyRows));

// The chains of products go on over `width` more elements of q and k. What is past a row's end is 0 in both.
template <class S>
__device__ __forceinline__ void add_scores(const S& shape, const Shared<S>& shared, int width,
                                           float (&sums)[S::kRowsEach][S::kKeysEach]) {
#pragma unroll 4
  for (int d = 0; d < width; d += 4) {
    float4 k[S::kKeysEach];
#pragma unroll
    for (int j = 0; j < S::kKeysEach; ++j) {
      k[j] = *reinterpret_cast<const float4*>(&shared.kv[shape.key(j) * kRowFloats + d]);
    }
#pragma unroll
    for (int r = 0; r < S::kRowsEach; ++r) {
      const float4 q = *reinterpret_cast<const float4*>(&shared.q[shape.row(r) * kRowFloats + d]);
#pragma unroll
      for (int j = 0; j < S::kKeysEach; ++j) {
        float sum = fmaf(q.x, k[j].x, sums[r][j]);
        sum = fmaf(q.y, k[j].y, sum);
        sum = fmaf(q.z, k[j].z, sum);
        sums[r][j] = fmaf(q.w, k[j].w, sum);
      }
    }
  }
}

// Scores to weights: what the row's eight lanes have come to, and the unit's own.
struct RowSums {
  float max = -INFINITY;
  float sum = 0;
};
template <class S>
__device__ __forceinline__ void soften(const S& shape, Shared<S>& shared, int row, long long begin,
                                       const long long* k_at, RowSums& total, RowSums& unit) {
  constexpr int kEach = kUnit / kColumnLanes;
  const int first = shape.lane % kColumnLanes;
  const int seen = seen_of(shared.ends[row], begin);
  float* p = &shared.p[row * kScoreFloats];
  float x[kEach];
  unsigned there = 0;
  float max = -INFINITY;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int j = i * kColumnLanes + first;
    if (j < seen && k_at[j] >= 0) there |= 1U << i;
    x[i] = (there >> i & 1U) != 0 ? p[j] : -INFINITY;
    max = fmaxf(max, x[i]);
  }
  for (int step = kColumnLanes / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, step));
  const unsigned lanes = __ballot_sync(kAllLanes, there != 0) >> (shape.lane & ~(kColumnLanes - 1));
  max = fmaxf(max, -0x1.fffffep127F);  // seen: no longer -infinity
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    x[i] = (there >> i & 1U) != 0 ? softmax_weight(x[i] - max) : 0.0F;
    p[i * kColumnLanes + first] = x[i];
  }
  float sum = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
  for (int step = kColumnLanes / 2; step > 0; step /= 2) sum = sum + __shfl_xor_sync(kAllLanes, sum, step);

  unit = {-INFINITY, 0};
  float2 factors{1, -1};
  if ((lanes & 0xFFU) != 0) {
    unit = {max, sum};
    const float now = fmaxf(total.max, max);
    factors = {softmax_weight(total.max - now), softmax_weight(max - now)};
    total.sum = fmaf(sum, factors.y, total.sum * factors.x);
    total.max = now;
  }
  if (first == 0) shared.factors[row] = factors;
}

// acc += p[j] * v[j] for the first `n` positions, each row as far as it sees where `ragged`.
template <class S, bool ragged>
__device__ __forceinline__ void add_values(const S& shape, const Shared<S>& shared, int n,
                                           const int (&seen)[S::kRowsEach],
                                           float (&acc)[S::kRowsEach][S::kFoursEach][4]) {
#pragma unroll 2
  for (int j = 0; j < n; j += 4) {
    float p[S::kRowsEach][4];
#pragma unroll
    for (int r = 0; r < S::kRowsEach; ++r) {
      const float4 four = *reinterpret_cast<const float4*>(&shared.p[shape.row(r) * kScoreFloats + j]);
      p[r][0] = four.x, p[r][1] = four.y, p[r][2] = four.z, p[r][3] = four.w;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int f = 0; f < S::kFoursEach; ++f) {
        const float4 v = *reinterpret_cast<const float4*>(&shared.kv[(j + i) * kRowFloats + shape.d(f)]);
#pragma unroll
        for (int r = 0; r < S::kRowsEach; ++r) {
          if (ragged && j + i >= seen[r]) continue;
          acc[r][f][0] = fmaf(p[r][i], v.x, acc[r][f][0]);
          acc[r][f][1] = fmaf(p[r][i], v.y, acc[r][f][1]);
          acc[r][f][2] = fmaf(p[r][i], v.z, acc[r][f][2]);
          acc[r][f][3] = fmaf(p[r][i], v.w, acc[r][f][3]);
        }
      }
    }
  }
}

}  // namespace conclave::cuda
