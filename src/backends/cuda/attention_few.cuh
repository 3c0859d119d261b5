// The steps of `few` of attention_mma_plan.h, and what it shares with `apart` and `units`: a block has one token and up to
// 16 heads of a KV head.
#pragma once

#include "backends/cuda/attention_mma.cuh"

namespace conclave::cuda {

inline constexpr int kTokenThreads = kUnitWarps * kWarp;
inline constexpr int kFound = 4;                   // units whose places are in shared memory
inline constexpr float kLeast = -0x1.fffffep127F;  // what a row sees is no less: never -infinity less -infinity
static_assert(kUnit / kUnitWarps == 8 && kTokenThreads == kFound * kUnit);

// RowPlaces of a unit.
struct UnitPlaces {
  long long k[kUnit];
  long long v[kUnit];

  __device__ __forceinline__ void set(int i, const RowPlace& place) {
    k[i] = place.k;
    v[i] = place.v;
  }
};

// rows_of() for one token, with nothing loaded, and no division where there is one token, one worker, or few heads.
__device__ __forceinline__ Rows rows_of_token(const AttentionArgs& args, const AttentionCut& cut, unsigned item) {
  Rows rows;
  const auto parts = static_cast<unsigned>(cut.head_parts);
  const auto n_tokens = static_cast<unsigned>(cut.n_groups);
  const unsigned per_token = static_cast<unsigned>(args.k.dims[2]) * parts;
  unsigned worker = 0;
  unsigned later = 0;
  unsigned part = 0;
  if (item >= n_tokens * per_token) {
    worker = item / (n_tokens * per_token);
    item -= worker * (n_tokens * per_token);
  }
  if (item >= per_token) {
    later = item / per_token;
    item -= later * per_token;
  }
  if (parts > 1) {
    part = item % parts;
    item /= parts;
  }
  rows.first_token = n_tokens - 1 - later;
  rows.kv_head = static_cast<std::int32_t>(item);
  rows.worker = static_cast<std::int32_t>(worker);
  rows.n = rows.n_heads = min(cut.n_heads, args.group - static_cast<std::int32_t>(part) * cut.n_heads);
  rows.first_head = item * static_cast<unsigned>(args.group) + part * static_cast<unsigned>(cut.n_heads);
  return rows;
}

// The tile of queries as the left operand: high parts in registers, low parts where they are.
template <int width>
struct FewQueries {
  unsigned high[width / 16][4];
  const uint4* low;

  __device__ __forceinline__ explicit FewQueries(const uint4 (&q)[2][kTileRows * width / 8]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int lane_at = tile_piece<width>(lane % 16, lane / 16);
    low = q[1];
#pragma unroll
    for (int step = 0; step < width / 16; ++step) load_tiles(high[step], q[0] + further_piece(lane_at, 2 * step));
  }
  // A half of d of q . k for eight positions, high and low parts.
  __device__ __forceinline__ void add_half(int half, const uint4* keys, float (&a)[4], float (&b)[4]) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int lane_at = tile_piece<width>(lane % 16, lane / 16);
    const int key_at = tile_piece<width>(lane % 8, lane / 8);
#pragma unroll
    for (int i = 0; i < width / 32; i += 2) {
      const int step = half * (width / 32) + i;
      unsigned k[4];
      load_tiles(k, keys + further_piece(key_at, 2 * step));
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        unsigned part[4];
        load_tiles(part, low + further_piece(lane_at, 2 * (step + j)));
        add_mma_f16_k16(a, high[step + j], k[2 * j], k[2 * j + 1]);
        add_mma_f16_k16(b, part, k[2 * j], k[2 * j + 1]);
      }
    }
  }
};

// The rows of queries that a warp brings, every kUnitWarps-th.
template <int width>
struct OwnQueries {
  static constexpr int kOwn = kTileRows / kUnitWarps;
  QueryRows<width, kOwn> queries;

  __device__ __forceinline__ void ask(const AttentionArgs& args, const Rows& rows, int warp) {
    queries.ask(args, [&](int i) {
      const int row = i * kUnitWarps + warp;
      return row < rows.n ? row_of(args.q, rows.first_token, rows.first_head + row) : nullptr;
    });
  }
  // To shared memory, with what their scores are multiplied by.
  template <class Shared>
  __device__ __forceinline__ void write(const AttentionArgs& args, int warp, int lane, Shared& shared) const {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int row = i * kUnitWarps + warp;
      const float factor = queries.write(args, i, row, shared.q[0], shared.q[1]);
      if (lane == 0) shared.factor[row] = factor;
    }
  }
};

// How many positions a token sees of a sequence of that length; none where it has no sequence.
template <class Count>
__device__ __forceinline__ Count seen_positions(const AttentionArgs& args, bool is_seq, std::int32_t position,
                                                std::int32_t length) {
  const std::int64_t seen = min(min(std::int64_t{position} + 1, std::int64_t{length}), args.context);
  return is_seq && seen > 0 ? static_cast<Count>(seen) : 0;
}

// A thread brings the same 16 bytes of several rows of a unit.
template <int width>
__device__ __forceinline__ void bring_unit(const View& pool, const long long* places, uint4* to) {
  constexpr int kRowPieces = width / 8;
  constexpr int kRowStep = kTokenThreads / kRowPieces;
  const int piece = static_cast<int>(threadIdx.x) % kRowPieces;
  const int own_row = static_cast<int>(threadIdx.x) / kRowPieces;
  const bool is_piece = piece < static_cast<int>(pool.dims[3]) / 8;
  to += tile_piece<width>(own_row, piece);
#pragma unroll(kUnit / kRowStep < 4 ? kUnit / kRowStep : 4)
  for (int row = 0; row < kUnit; row += kRowStep) {
    const long long at = places[own_row + row];
    const bool is = is_piece && at >= 0;
    copy_16_or_zeros(to + row * kRowPieces, pool.data + (is ? at + piece * 16 : 0), is);
  }
}

// Scores of a warp's eight positions of a unit, and the largest of each row, left for the other warps. `y`: q . k, high
// and low parts.
__device__ __forceinline__ void finish_scores(const float (&y)[2][4], const float (&factors)[2],
                                              const UnitPlaces& places, float4 (&of_warps)[kTileRows][kUnitWarps / 4],
                                              float (&scores)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const auto own = *reinterpret_cast<const longlong2*>(&places.k[8 * warp + lane % 4 * 2]);
  const bool there[2] = {own.x >= 0, own.y >= 0};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float max = -INFINITY;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float& score = scores[2 * r + j];
      score = there[j] ? (y[0][2 * r + j] + y[1][2 * r + j]) * factors[r] : -INFINITY;
      if (there[j]) max = fmaxf(max, fmaxf(score, kLeast));
    }
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
    if (lane % 4 == 0) reinterpret_cast<float*>(of_warps[lane / 4 + 8 * r])[warp] = max;
  }
}

// Their weights, left for the other warps; `max`: of the lane's rows, over all warps.
__device__ __forceinline__ void leave_weights(const float (&scores)[4],
                                              const float4 (&of_warps)[kTileRows][kUnitWarps / 4],
                                              uint4 (&weights)[kTileRows][kWeightPieces], float (&max)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float4 a = of_warps[lane / 4 + 8 * r][0];
    const float4 b = of_warps[lane / 4 + 8 * r][1];
    max[r] = fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
    const float base = fmaxf(max[r], kLeast);
    reinterpret_cast<__half2*>(&weights[lane / 4 + 8 * r][warp])[lane % 4] =
        __floats2half2_rn(power_of_two(scores[2 * r] - base), power_of_two(scores[2 * r + 1] - base));
  }
}

// A half of a unit's positions: weights times values, for the warp's part of d_v, and the sum of weights.
template <int width>
inline constexpr int kValueTiles = width / 8 / kUnitWarps;  // of eight elements

template <int width>
__device__ __forceinline__ void add_values(int half, const uint4 (&weights)[kTileRows][kWeightPieces],
                                           const uint4* values, float (&acc)[kValueTiles<width>][4], float (&sums)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  unsigned p[2][4];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    load_tiles(p[j], &weights[lane % 16][lane / 16 + 4 * half + 2 * j]);
    add_mma_f16_k16(sums, p[j], kOnes, kOnes);
  }
#pragma unroll
  for (int n = 0; n < kValueTiles<width>; ++n) {
    unsigned v[4];
    const int at = tile_piece<width>(lane, warp * kValueTiles<width>) ^ n;
    load_tiles_turned(v, values + half * 4 * width + at);
    add_mma_f16_k16(acc[n], p[0], v[0], v[1]);
    add_mma_f16_k16(acc[n], p[1], v[2], v[3]);
  }
}

// What positions have come to for four elements of a row.
struct MergedPiece {
  float max = -INFINITY;
  float sum = 0;
  float4 acc{0, 0, 0, 0};

  __device__ __forceinline__ void add(float next_max, float next_sum, const float4& next) {
    const bool sees = next_max != -INFINITY;
    const Factors by = merge_factors(max, next_max);
    const float4 both = merged(by, acc, next);
    sum = sees ? merged(by, sum, next_sum) : sum;
    acc = {sees ? both.x : acc.x, sees ? both.y : acc.y, sees ? both.z : acc.z, sees ? both.w : acc.w};
  }
};

// The first n units of a range, in ascending order: sum_of(i) gives a unit's maximum and sum, acc_of(i) what it comes to.
// All are asked for before the first is used.
template <class Merged, class SumOf, class AccOf>
__device__ __forceinline__ Merged merge_in_order(int n, const SumOf& sum_of, const AccOf& acc_of) {
  float2 sum[kRangeUnits];
  decltype(Merged::acc) acc[kRangeUnits];
#pragma unroll
  for (int i = 0; i < kRangeUnits; ++i) {
    sum[i] = {-INFINITY, 0};
    acc[i] = {};
    if (i >= n) continue;
    sum[i] = sum_of(i);
    acc[i] = acc_of(i);
  }
  Merged range;
#pragma unroll
  for (int i = 0; i < kRangeUnits; ++i) {
    if (i < n) range.add(sum[i].x, sum[i].y, acc[i]);
  }
  return range;
}

}  // namespace conclave::cuda
