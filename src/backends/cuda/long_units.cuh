// How a block of long_heads_plan.h attends to its units.
#pragma once

#include "backends/cuda/lone_heads_cache.cuh"
#include "backends/cuda/long_heads_plan.h"

namespace conclave::cuda {

inline constexpr int kTeamTiles = kUnit / 8 / kLongTeam;            // of eight positions, whose scores a warp has
inline constexpr int kTeamValues = kLoneHeadWidth / 8 / kLongTeam;  // of eight elements of d, likewise
static_assert(kTeamValues * 8 == kLoneHeadWidth / 2);               // half of d: values lie in halves

// As load_tiles() and load_tiles_turned(), from an address of shared memory.
__device__ __forceinline__ void load_tiles_at(unsigned* to, unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}
__device__ __forceinline__ void load_turned_at(unsigned* to, unsigned row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}

// What the warps of a team tell each other.
struct LongTeam {
  uint4 weights[kLoneGroup][kWeightPieces];
  float max[kLongTeam][kLoneGroup];
};

struct LongHeadsShared : LoneUnitsShared {
  LongTeam teams[kLongTeams];
  float4 range_acc[kLongTeam][kTeamValues / 2][kWarp];  // of the range that is being merged, as lanes have it
  float2 range_sums[kLongTeam][kWarp];                  // maximum, sum
  uint4 own[2][kLoneHeadPieces];                        // key and value of the token as cached
  std::int32_t pages[kWarp];                            // where the block's units are
  std::uint32_t slots[kWarp];                           // and where they begin there
  std::uint64_t full[kLongSlots];                       // counts bytes
  std::int32_t turn[kLongTeam];                         // the unit that is next in a range
  std::int32_t count;                                   // of the block's units
  std::int32_t n_whole;                                 // the first of them, in whole ranges
  std::int32_t first;                                   // the ith of the others is unit first + i * step
  std::int32_t step;
  std::int32_t unused[2];
};
static_assert(sizeof(LongHeadsShared) == kLongHeadsFixed);

// Whose turn it is is told by one warp, with what it wrote before, and awaited by another.
__device__ __forceinline__ void await_turn(const std::int32_t& turn, int own) {
  int now = 0;
  do {
    asm volatile("ld.acquire.cta.shared.s32 %0, [%1];" : "=r"(now) : "r"(shared_address(&turn)) : "memory");
  } while (now != own);
  __syncwarp();
}
__device__ __forceinline__ void pass_turn(std::int32_t& turn, int next) {
  __syncwarp();
  if (threadIdx.x % kWarp != 0) return;
  asm volatile("st.release.cta.shared.s32 [%0], %1;" ::"r"(shared_address(&turn)), "r"(next) : "memory");
}

// What a unit, or a range, comes to: for the lane's row, two elements of each tile of the warp's half of d.
struct LongResult {
  float2 acc[kTeamValues];
  float max;
  float sum;
};

// A warp of a team. A team has every kLongTeams-th of the block's units, which come to the same two slots: keys,
// values. Where a lane finds what it reads and writes is known before there is anything to read.
struct LongWorker {
  const LoneHeadsArgs& args;
  LongHeadsShared& shared;
  int kv_head;
  uint4* keys;
  uint4* values;
  unsigned team = threadIdx.x / kWarp / kLongTeam;
  unsigned part = threadIdx.x / kWarp % kLongTeam;
  unsigned full;  // the barrier of the keys; that of the values follows it
  unsigned own_q;
  unsigned own_keys;
  unsigned own_values;
  unsigned own_weights;

  __device__ static unsigned lane() { return threadIdx.x % kWarp; }

  __device__ __forceinline__ LongWorker(const LoneHeadsArgs& a, LongHeadsShared& s, uint4* slots, int head)
      : args(a), shared(s), kv_head(head) {
    const auto nth = static_cast<int>(lane());
    keys = slots + static_cast<int>(team) * 2 * kLongSlotPieces;
    values = keys + kLongSlotPieces;
    full = shared_address(shared.full + 2 * team);
    own_q = shared_address(shared.q[lane() / 8 % 2] + tile_piece<kLoneHeadWidth>(nth % 8, nth / 16));
    own_keys = shared_address(keys + lone_piece_of(static_cast<int>(part) * kTeamTiles * 8 + nth % 8, nth / 8));
    own_values = shared_address(values + lone_piece_of(nth, static_cast<int>(part) * kTeamValues));
    own_weights = shared_address(&shared.teams[team].weights[lane() % 8][lane() / 16]);
    asm volatile("" : "+r"(own_q), "+r"(own_keys), "+r"(own_values), "+r"(own_weights));  // now
  }

  // The team is done with what is there: keys, or values, of its next unit may come. By the warp of the team that has
  // them.
  __device__ __forceinline__ void bring(int next, uint4* to, const LonePoolMap& map, unsigned barrier) const {
#if __CUDA_ARCH__ >= 900
    if (next >= shared.count || lane() != 0) return;
    const bool seen = shared.seen[next] > 0;
    expect_bytes(barrier, seen ? static_cast<int>(kLongSlotBytes) : 0);
    for (int half = 0; seen && half < 2; ++half) {
      copy_lone_half(to + half * kLoneHalfPieces, map, half, kv_head, shared.slots[next], shared.pages[next], barrier);
    }
#endif
  }
  __device__ __forceinline__ void sync_team() const {
    asm volatile("bar.sync %0, %1;" ::"r"(2 + team), "n"(kLongTeam * kWarp) : "memory");
  }
  __device__ __forceinline__ void put_own(uint4* to, int row, const uint4 (&words)[kLoneHeadPieces]) const {
    if (part == 0 && lane() < kLoneHeadPieces) to[lone_piece_of(row, static_cast<int>(lane()))] = words[lane()];
    shared_for_wgmma();  // for a copy to the same place, later
  }

  // q . k of the warp's positions, high parts, then low parts.
  __device__ __forceinline__ void score(float (&y)[kTeamTiles][4]) const {
#pragma unroll
    for (unsigned step = 0; step < kLoneHeadWidth / 16; step += 2) {
      unsigned a[2][4];
      load_tiles_at(a[0], (own_q ^ 2 * step % 8 * 16) + step / 4 * 128);
      load_tiles_at(a[1], (own_q ^ (2 * step + 2) % 8 * 16) + step / 4 * 128);
#pragma unroll
      for (unsigned t = 0; t < kTeamTiles; ++t) {
        unsigned k[4];
        load_tiles_at(k, (own_keys ^ 2 * step % 8 * 16) + step / 4 * kLoneHalfPieces * 16 + t * 1024);
        add_mma_f16_k16(y[t], a[0], k[0], k[1]);
        add_mma_f16_k16(y[t], a[1], k[2], k[3]);
      }
    }
  }
  // Scores of what is seen, the first so many positions of the unit, and the largest of the lane's row.
  __device__ __forceinline__ float finish_scores(const float (&y)[kTeamTiles][4], int seen,
                                                 float2 (&scores)[kTeamTiles]) const {
    const float factor = shared.factor[lane() / 4];
    const int from_own = seen - static_cast<int>(part * kTeamTiles * 8 + lane() % 4 * 2);
    float max = -INFINITY;
#pragma unroll
    for (int t = 0; t < kTeamTiles; ++t) {
      const auto finish = [&](int j) {
        const bool there = 8 * t + j < from_own;
        const float score = there ? (y[t][j] + y[t][2 + j]) * factor : -INFINITY;
        if (there) max = fmaxf(max, fmaxf(score, kLeast));
        return score;
      };
      scores[t] = {finish(0), finish(1)};
    }
    max = fmaxf(max, __shfl_xor_sync(kAllLanes, max, 1));
    return fmaxf(max, __shfl_xor_sync(kAllLanes, max, 2));
  }
  // The weights of the unit times its values, for the warp's half of d, and their sum.
  __device__ __forceinline__ void add_values(LongResult& to) const {
    unsigned p[kUnit / 16][4];
    float sums[4] = {};
#pragma unroll
    for (unsigned s = 0; s < kUnit / 16; ++s) {
      load_tiles_at(p[s], own_weights + s * 32);
      add_mma_f16_k16(sums, p[s], kOnes, kOnes);
    }
    to.sum = sums[0];
#pragma unroll
    for (unsigned n = 0; n < kTeamValues; ++n) {
      float acc[4] = {};
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        unsigned v[4];
        load_turned_at(v, (own_values ^ n * 16) + half * kWarp * 128);
        add_mma_f16_k16(acc, p[2 * half], v[0], v[1]);
        add_mma_f16_k16(acc, p[2 * half + 1], v[2], v[3]);
      }
      to.acc[n] = {acc[0], acc[1]};
    }
  }

  // The block's ith unit, `phase` of its slots' barriers.
  __device__ __forceinline__ void attend(int i, unsigned phase, LongResult& to) const {
    const int seen = shared.seen[i];
    const int own_row = shared.own_rows[i];
    LongTeam& ours = shared.teams[team];
    barrier_wait_awake(full, phase);
    if (own_row >= 0) {
      put_own(keys, own_row, shared.own[0]);
      sync_team();
    }
    float y[kTeamTiles][4] = {};
    score(y);
    float2 scores[kTeamTiles];
    to.max = finish_scores(y, seen, scores);
    if (lane() % 4 == 0) ours.max[part][lane() / 4] = to.max;
    sync_team();
    if (part == 0) bring(i + kLongTeams, keys, args.k_map, full);
    to.max = fmaxf(to.max, ours.max[1 - part][lane() / 4]);
    const float base = fmaxf(to.max, kLeast);
#pragma unroll
    for (int t = 0; t < kTeamTiles; ++t) {
      reinterpret_cast<__half2*>(&ours.weights[lane() / 4][part * kTeamTiles + t])[lane() % 4] =
          __floats2half2_rn(power_of_two(scores[t].x - base), power_of_two(scores[t].y - base));
    }
    barrier_wait_awake(full + 8, phase);
    if (own_row >= 0) put_own(values, own_row, shared.own[1]);
    if (seen < kUnit) {
      // Values that the token does not see become zeros, so that nothing of them counts.
#pragma unroll 1
      for (int p = seen * 8 + static_cast<int>(threadIdx.x % (kLongTeam * kWarp)); p < kLoneHalfPieces;
           p += kLongTeam * kWarp) {
        values[p] = values[p + kLoneHalfPieces] = {0, 0, 0, 0};
      }
      shared_for_wgmma();
    }
    sync_team();
    add_values(to);
    sync_team();
    if (part == 1) bring(i + kLongTeams, values, args.v_map, full + 8);
  }

  // The units of a range are merged in ascending order, each by the warp that has it: `of` is what they come to then.
  __device__ __forceinline__ void add_to_range(int i, LongResult& of) const {
    const bool is_first = i % kRangeUnits == 0;
    const bool is_last = i % kRangeUnits == kRangeUnits - 1;
    await_turn(shared.turn[part], i);
    const float2 before = is_first ? float2{-INFINITY, 0} : shared.range_sums[part][lane()];
    MergedPiece range;
#pragma unroll
    for (int n = 0; n < kTeamValues; n += 2) {
      float4& acc = shared.range_acc[part][n / 2][lane()];
      range = {before.x, before.y, is_first ? float4{0, 0, 0, 0} : acc};
      range.add(of.max, of.sum, {of.acc[n].x, of.acc[n].y, of.acc[n + 1].x, of.acc[n + 1].y});
      if (!is_last) acc = range.acc;
      of.acc[n] = {range.acc.x, range.acc.y};
      of.acc[n + 1] = {range.acc.z, range.acc.w};
    }
    of.max = range.max;
    of.sum = range.sum;
    if (!is_last) shared.range_sums[part][lane()] = {of.max, of.sum};
    pass_turn(shared.turn[part], i + 1);
  }
};
static_assert(kLongTeam == 2 && kLongSlots == 2 * kLongTeams);  // a slot has one team's units alone

}  // namespace conclave::cuda
