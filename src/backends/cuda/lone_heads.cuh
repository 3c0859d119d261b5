// Pieces of the kernel of lone_heads_plan.h.
#pragma once

#include "backends/cuda/attention_few.cuh"
#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/cluster.cuh"
#include "backends/cuda/kv_put.cuh"
#include "backends/cuda/lone_heads_plan.h"
#include "backends/cuda/rope_turn.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {

inline constexpr int kHalfWarp = kWarp / 2;  // has a head, a lane eight neighbouring elements
static_assert(kHalfWarp * kRunLength == kLoneHeadWidth);

// What the kernel reads beside the heads comes to.
struct LoneContext {
  std::int32_t n_units;   // of what the token sees
  std::int32_t end;       // positions that it sees
  std::int32_t own_page;  // where it goes; -1: nowhere
  std::uint32_t own_slot;
  std::int32_t live;
  std::int32_t position;
  std::int32_t unused[2];
};

// What a block attends with.
struct LoneUnitsShared {
  uint4 q[2][kLoneGroup * kLoneHeadPieces];               // high and low parts
  uint4 weights[kLoneAtOnce][kLoneGroup][kWeightPieces];  // before there are any: sines and cosines
  float4 max[kLoneAtOnce][kLoneGroup][kUnitWarps / 4];    // of what a row sees, by each warp
  LoneContext context;
  std::int32_t own_rows[kWarp];  // of the block's units: the row that is the token's own; -1: none
  std::int32_t seen[kWarp];      // positions of the block's units that the token sees, the first so many
  float factor[kLoneGroup];
  std::uint64_t brought[kLoneHeldUnits];  // counts bytes of keys and values

  __device__ __forceinline__ float2* turns() { return reinterpret_cast<float2*>(weights); }
};
static_assert(sizeof(LoneUnitsShared) == kLoneUnitsFixed && sizeof(LoneUnitsShared) % 16 == 0);
static_assert(kLonePairs * sizeof(float2) <= kLoneGroup * kWeightPieces * sizeof(uint4));

struct LoneHeadsShared : LoneUnitsShared {
  float2 range_sums[kLoneMaxUnits / kRangeUnits];
  std::uint64_t arrived[2];  // the first counts bytes of results

  // What follows it.
  __device__ __forceinline__ float* results() { return reinterpret_cast<float*>(this + 1); }  // [units][kLonePart]
  __device__ __forceinline__ float2* sums(int max_units) {                                    // [units]: maximum, sum
    return reinterpret_cast<float2*>(results() + max_units * kLonePart);
  }
};
static_assert(sizeof(LoneHeadsShared) == kLoneHeadsFixed && sizeof(LoneHeadsShared) % 16 == 0);

// Keys or values of a unit lie in two halves of d. A half has rows of 128 bytes, whose pieces are swapped about so that the
// same piece of eight neighbouring rows lies in different banks: as copies leave them.
inline constexpr int kLoneHalfPieces = kUnit * kLoneHeadPieces / 2;
__device__ __forceinline__ int lone_piece_of(int row, int piece) {
  return piece / 8 * kLoneHalfPieces + row * 8 + (piece % 8 ^ row % 8);
}

// Half of the keys or values of a unit, from a slot of a page on.
__device__ __forceinline__ void copy_lone_half(uint4* to, const LonePoolMap& map, int half, int kv_head,
                                               std::uint32_t slot, std::int32_t page, unsigned barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(shared_address(to)),
      "l"(&map), "r"(half * kLoneHeadWidth / 2), "r"(kv_head), "r"(slot), "r"(page), "r"(barrier)
      : "memory");
#endif
}
__device__ __forceinline__ void fetch_map(const LonePoolMap& map) {
#if __CUDA_ARCH__ >= 900
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

// Warps that copy say that the context and the turns are there; warps that have heads wait for it.
__device__ __forceinline__ void arrive_with_context() {
  asm volatile("bar.arrive 1, %0;" ::"n"(kTokenThreads) : "memory");
}
__device__ __forceinline__ void await_context() {
  asm volatile("bar.sync 1, %0;" ::"n"(kTokenThreads) : "memory");
}

__device__ __forceinline__ std::int64_t row_in(const LoneHeadPool& pool, std::int32_t page, std::uint32_t slot,
                                               int kv_head) {
  return page * pool.page + slot * pool.slot + kv_head * pool.head;
}

// Over half a warp: all its lanes have the same bits.
template <class Fold>
__device__ __forceinline__ float fold_half(float value, Fold fold) {
#pragma unroll
  for (int other = kHalfWarp / 2; other > 0; other /= 2) value = fold(value, __shfl_xor_sync(kAllLanes, value, other));
  return value;
}

// A head in half a warp.
struct LoneHead {
  Run x;

  __device__ static int piece() { return static_cast<int>(threadIdx.x) % kHalfWarp; }

  // As rms_norm does it. By whole warps.
  __device__ __forceinline__ void norm(const Run& weight, float eps) {
    const auto squares = [&](float factor) {
      float sum = 0;
      add_squares(x, factor, sum);
      return fold_half(sum, [](float a, float b) { return a + b; });
    };
    float factor = 1;
    float sum = squares(1);
    if (__any_sync(kAllLanes, !(sum < INFINITY)) != 0) {
      const float scaled = squares(0x1p-80F);
      if (!(sum < INFINITY)) {
        factor = 0x1p-80F;
        sum = scaled;
      }
    }
    const float root = sqrtf(sum / static_cast<float>(kLoneHeadWidth) + eps * factor * factor);
    norm_run(x, weight, {factor, 1.0F / root}, x);
  }
  // Pairs are half a head apart: in another lane.
  __device__ __forceinline__ void rotate(const float2* turns) {
    const bool is_first = piece() < kHalfWarp / 2;
    const float2* by = turns + piece() % (kHalfWarp / 2) * kRunLength;
#pragma unroll
    for (int j = 0; j < kRunLength; j += 2) {
      const float4 two = *reinterpret_cast<const float4*>(by + j);
      const float a = __shfl_xor_sync(kAllLanes, x[j], kHalfWarp / 2);
      const float b = __shfl_xor_sync(kAllLanes, x[j + 1], kHalfWarp / 2);
      x[j] = is_first ? rotated(x[j], a, {two.x, two.y}).x : rotated(a, x[j], {two.x, two.y}).y;
      x[j + 1] = is_first ? rotated(x[j + 1], b, {two.z, two.w}).x : rotated(b, x[j + 1], {two.z, two.w}).y;
    }
  }
  // To row `at` of the tiles, where it `is` one, as QueryRows does it. By whole warps.
  __device__ __forceinline__ void write_query(float scale, int at, bool is, LoneUnitsShared& shared) const {
    float largest = 0;
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) largest = fmaxf(largest, fabsf(x[j]));
    const QueryScale by(scale, fold_half(largest, [](float a, float b) { return fmaxf(a, b); }));
    unsigned high[kRunLength / 2];
    unsigned low[kRunLength / 2];
#pragma unroll
    for (int j = 0; j < kRunLength; j += 2) {
      const HalfParts parts = by.split(x[j], x[j + 1]);
      high[j / 2] = *reinterpret_cast<const unsigned*>(&parts.high);
      low[j / 2] = *reinterpret_cast<const unsigned*>(&parts.low);
    }
    if (!is) return;
    const int to = tile_piece<kLoneHeadWidth>(at, piece());
    shared.q[0][to] = {high[0], high[1], high[2], high[3]};
    shared.q[1][to] = {low[0], low[1], low[2], low[3]};
    if (piece() == 0) shared.factor[at] = by.factor;
  }
  __device__ __forceinline__ uint4 as_cached() const {
    uint4 words;
    put_run(DType::f16, reinterpret_cast<std::byte*>(&words), 0, x);
    return words;
  }
};

// The queries as the left operand, by steps of 16 elements of d. A tile has eight rows; the upper half of the operand are
// high parts, the lower half low parts.
struct LoneQueries {
  unsigned part[kLoneHeadWidth / 16][4];

  __device__ __forceinline__ explicit LoneQueries(const uint4 (&q)[2][kLoneGroup * kLoneHeadPieces]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int at = tile_piece<kLoneHeadWidth>(lane % 8, lane / 16);
#pragma unroll
    for (int step = 0; step < kLoneHeadWidth / 16; ++step) {
      load_tiles(part[step], q[lane / 8 % 2] + further_piece(at, 2 * step));
    }
  }
};

// q . k of the warp's eight positions of n units: high parts, then low parts.
template <int n>
__device__ __forceinline__ void add_lone_scores(const LoneQueries& q, const uint4* const (&keys)[n], float (&y)[n][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int key_at = lone_piece_of(warp * 8 + lane % 8, lane / 8);
#pragma unroll
  for (int step = 0; step < kLoneHeadWidth / 16; step += 2) {
#pragma unroll
    for (int u = 0; u < n; ++u) {
      unsigned k[4];
      load_tiles(k, keys[u] + step / 4 * kLoneHalfPieces + (key_at ^ 2 * step % 8));
      add_mma_f16_k16(y[u], q.part[step], k[0], k[1]);
      add_mma_f16_k16(y[u], q.part[step + 1], k[2], k[3]);
    }
  }
}

// Scores of a unit, two positions of a row to a lane, and the row's largest, left for the other warps. `seen`: positions
// of it, the first so many.
__device__ __forceinline__ void finish_lone_scores(const float (&y)[4], float factor, int seen,
                                                   float4 (&of_warps)[kLoneGroup][kUnitWarps / 4], float (&scores)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int first = 8 * warp + lane % 4 * 2;
  const bool there[2] = {first < seen, first + 1 < seen};
  float max = -INFINITY;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    scores[j] = there[j] ? (y[j] + y[2 + j]) * factor : -INFINITY;
    if (there[j]) max = fmaxf(max, fmaxf(scores[j], kLeast));
  }
  max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
  max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
  if (lane % 4 == 0) reinterpret_cast<float*>(of_warps[lane / 4])[warp] = max;
}
// Their weights, left for the other warps. Returns the largest over all warps.
__device__ __forceinline__ float leave_lone_weights(const float (&scores)[2],
                                                    const float4 (&of_warps)[kLoneGroup][kUnitWarps / 4],
                                                    uint4 (&weights)[kLoneGroup][kWeightPieces]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const float4 a = of_warps[lane / 4][0];
  const float4 b = of_warps[lane / 4][1];
  const float max = fmaxf(fmaxf(fmaxf(a.x, a.y), fmaxf(a.z, a.w)), fmaxf(fmaxf(b.x, b.y), fmaxf(b.z, b.w)));
  const float base = fmaxf(max, kLeast);
  reinterpret_cast<__half2*>(&weights[lane / 4][warp])[lane % 4] =
      __floats2half2_rn(power_of_two(scores[0] - base), power_of_two(scores[1] - base));
  return max;
}

// All positions of a unit: weights times values, for the warp's part of d_v, and the sum of weights.
__device__ __forceinline__ void add_lone_values(const uint4 (&weights)[kLoneGroup][kWeightPieces], const uint4* values,
                                                float (&acc)[kValueTiles<kLoneHeadWidth>][4], float (&sums)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int own = lone_piece_of(lane, warp * kValueTiles<kLoneHeadWidth>);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    unsigned p[2][4];  // the lower half of the operand is the upper one again: nobody looks at what it gives
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      load_tiles(p[j], &weights[lane % 8][4 * half + 2 * j + lane / 16]);
      add_mma_f16_k16(sums, p[j], kOnes, kOnes);
    }
#pragma unroll
    for (int n = 0; n < kValueTiles<kLoneHeadWidth>; ++n) {
      unsigned v[4];
      load_tiles_turned(v, values + half * kWarp * 8 + (own ^ n));
      add_mma_f16_k16(acc[n], p[0], v[0], v[1]);
      add_mma_f16_k16(acc[n], p[1], v[2], v[3]);
    }
  }
}

}  // namespace conclave::cuda
