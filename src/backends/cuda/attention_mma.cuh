// Attention on tensor cores: the steps that both kernels take, by a warp with a tile of 16 rows of queries. Lane l has
// rows l / 4 and l / 4 + 8 of every product, columns 2(l % 4) and the next of each eight. attention_mma_plan.h has the
// arithmetic.
#pragma once

#include "backends/cuda/attention_items.cuh"
#include "backends/cuda/attention_mma_plan.h"
#include "backends/cuda/mma.cuh"

namespace conclave::cuda {

inline constexpr unsigned kOnes = 0x3C003C00U;  // two of f16
inline constexpr int kSteps = kUnit / 16;       // of positions

// A tile has rows of `width` numbers in 16-byte pieces; the pieces of a row are swapped about so that the same piece of
// eight neighbouring rows lies in different banks.
template <int width>
__device__ __forceinline__ int tile_piece(int row, int piece) {
  return row * (width / 8) + (piece ^ (row & 7));
}
// `further` pieces on from `at`, which is one of the first eight of a row and has none of the bits of `further` but by
// that swapping, which stays among eight: what lies beyond is an addition of what is known beforehand.
__device__ __forceinline__ int further_piece(int at, int further) {
  return (at ^ (further & 7)) + (further & ~7);
}

// How a row of queries becomes f16 in two parts.
struct HalfParts {
  __half2 high;
  __half2 low;
};
struct QueryScale {
  float grow;
  float factor;  // what scores are multiplied by

  __device__ __forceinline__ QueryScale(float scale, float largest) {
    // Exponents as f32 stores them: the largest gets 127 + 14. An infinity stays one, and its low part is NaN.
    const unsigned grown = min(268U - (__float_as_uint(largest) >> 23U), 253U);
    grow = __uint_as_float(grown << 23U);
    factor = scale * 0x1.715476p+0F * __uint_as_float((254U - grown) << 23U);
  }
  __device__ __forceinline__ HalfParts split(float x, float y) const {
    const float a = x * grow;
    const float b = y * grow;
    const __half2 h = __floats2half2_rn(a, b);
    return {h, __floats2half2_rn(a - __low2float(h), b - __high2float(h))};
  }
};

// Rows of queries on their way through a warp's registers: asked for together, then written one by one.
template <int width, int n_rows>
struct QueryRows {
  float x[n_rows][width / 32];

  __device__ static int d_of(int i) { return i / 2 * 64 + static_cast<int>(threadIdx.x) % kWarp * 2 + i % 2; }

  // `row_at(i)`: where row i lies; null: there is none, and it is zeros.
  template <class RowAt>
  __device__ __forceinline__ void ask(const AttentionArgs& args, const RowAt& row_at) {
    const int d_k = static_cast<int>(args.q.dims[2]);
    const bool whole = args.q.type == DType::f32;
#pragma unroll
    for (int r = 0; r < n_rows; ++r) {
      const std::byte* row = row_at(r);
#pragma unroll
      for (int i = 0; i < width / 32; ++i) {
        x[r][i] = 0;
        if (whole && row != nullptr && d_of(i) < d_k) x[r][i] = reinterpret_cast<const float*>(row)[d_of(i)];
      }
    }
    if (whole) return;
#pragma unroll
    for (int r = 0; r < n_rows; ++r) {
      const std::byte* row = row_at(r);
#pragma unroll
      for (int i = 0; i < width / 32; ++i) {
        if (row != nullptr && d_of(i) < d_k) x[r][i] = load_float(args.q.type, row, d_of(i));
      }
    }
  }
  // Row r to row `at` of two tiles, high and low parts. Returns what scores are multiplied by.
  __device__ __forceinline__ float write(const AttentionArgs& args, int r, int at, uint4* high, uint4* low) const {
    float largest = 0;
#pragma unroll
    for (int i = 0; i < width / 32; ++i) largest = fmaxf(largest, fabsf(x[r][i]));
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
    }
    const QueryScale scale(args.scale, largest);
#pragma unroll
    for (int i = 0; i < width / 32; i += 2) {
      const HalfParts parts = scale.split(x[r][i], x[r][i + 1]);
      const int word = tile_piece<width>(at, d_of(i) / 8) * 4 + d_of(i) % 8 / 2;
      reinterpret_cast<__half2*>(high)[word] = parts.high;
      reinterpret_cast<__half2*>(low)[word] = parts.low;
    }
    return scale.factor;
  }
};

// A warp's tile of queries as the left operand.
template <int width, bool kept>
struct Queries {
  unsigned high_[kept ? width / 16 : 1][4];
  unsigned low_[kept ? width / 16 : 1][4];
  const uint4* high_tile;
  const uint4* low_tile;
  int lane_at;

  __device__ __forceinline__ Queries(const uint4* high, const uint4* low) : high_tile(high), low_tile(low) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    lane_at = tile_piece<width>(lane % 16, lane / 16);
    if constexpr (kept) {
#pragma unroll
      for (int step = 0; step < width / 16; ++step) {
        load_tiles(high_[step], high + (lane_at ^ (2 * step)));
        load_tiles(low_[step], low + (lane_at ^ (2 * step)));
      }
    }
  }
  // 16 elements of d.
  __device__ __forceinline__ void get(int step, unsigned (&high)[4], unsigned (&low)[4]) const {
    if constexpr (kept) {
#pragma unroll
      for (int i = 0; i < 4; ++i) high[i] = high_[step][i], low[i] = low_[step][i];
    } else {
      load_tiles(high, high_tile + (lane_at ^ (2 * step)));
      load_tiles(low, low_tile + (lane_at ^ (2 * step)));
    }
  }
};

// q . k for `chunks` times 16 positions, before the factor.
template <int chunks, int width, bool kept>
__device__ __forceinline__ void score(const Queries<width, kept>& queries, const uint4* keys, float (*scores)[4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int lane_at = tile_piece<width>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  float high[2 * chunks][4] = {};
  float low[2 * chunks][4] = {};
#pragma unroll(kept ? width / 16 : 4)
  for (int step = 0; step < width / 16; ++step) {
    unsigned q_high[4];
    unsigned q_low[4];
    queries.get(step, q_high, q_low);
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) {
      unsigned k[4];
      load_tiles(k, keys + chunk * 2 * width + (lane_at ^ (2 * step)));
      add_mma_f16_k16(high[2 * chunk], q_high, k[0], k[1]);
      add_mma_f16_k16(high[2 * chunk + 1], q_high, k[2], k[3]);
      add_mma_f16_k16(low[2 * chunk], q_low, k[0], k[1]);
      add_mma_f16_k16(low[2 * chunk + 1], q_low, k[2], k[3]);
    }
  }
#pragma unroll
  for (int t = 0; t < 2 * chunks; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[t][i] = high[t][i] + low[t][i];
  }
}

// The positions of a unit that a row sees: bit j for the jth.
__device__ __forceinline__ unsigned long long seen_bits(unsigned long long there, int seen) {
  return seen >= kUnit ? there : there & ((1ULL << seen) - 1);
}

// Scores of a unit to weights, as the left operand of the product with values. `bits`: what the lane's two rows see,
// looked at if `ragged`; else they see everything. `max`: -infinity where a row sees nothing.
template <bool ragged>
__device__ __forceinline__ void soften(float (&scores)[2 * kSteps][4], const float (&factors)[2],
                                       const unsigned long long (&bits)[2], float (&max)[2], unsigned (&p)[kSteps][4]) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
  float base[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const unsigned long long own = bits[r] >> first;
    max[r] = -INFINITY;
#pragma unroll
    for (int t = 0; t < 2 * kSteps; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& y = scores[t][2 * r + i];
        y = y * factors[r];
        if (ragged && (own >> (8 * t + i) & 1U) == 0) y = -INFINITY;
        max[r] = fmaxf(max[r], y);
      }
    }
    max[r] = fmaxf(max[r], __shfl_xor_sync(kAllLanes, max[r], 1));
    max[r] = fmaxf(max[r], __shfl_xor_sync(kAllLanes, max[r], 2));
    const bool sees = !ragged || bits[r] != 0;
    base[r] = fmaxf(max[r], -0x1.fffffep127F);  // never -infinity less -infinity
    max[r] = sees ? base[r] : -INFINITY;
  }
#pragma unroll
  for (int t = 0; t < 2 * kSteps; ++t) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const __half2 pair =
          __floats2half2_rn(power_of_two(scores[t][2 * r] - base[r]), power_of_two(scores[t][2 * r + 1] - base[r]));
      p[t / 2][t % 2 * 2 + r] = *reinterpret_cast<const unsigned*>(&pair);
    }
  }
}

// Sums of the weights of the lane's two rows.
__device__ __forceinline__ void sum_weights(const unsigned (&p)[kSteps][4], float (&sum)[2]) {
  float c[4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) add_mma_f16_k16(c, p[step], kOnes, kOnes);
  sum[0] = c[0];
  sum[1] = c[2];
}

// Where a lane finds 16 positions of values, 16 elements of d from piece 0 on; piece n further is at ^ n.
template <int width>
__device__ __forceinline__ int value_at() {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  return tile_piece<width>(lane % 16, lane / 16);
}

// How what has been merged so far and what comes next are multiplied; `max` moves on. Not for a next that has seen
// nothing.
struct Factors {
  float before;
  float next;
};
__device__ __forceinline__ Factors merge_factors(float& max, float next) {
  const float now = fmaxf(max, next);
  const Factors factors{power_of_two(max - now), power_of_two(next - now)};
  max = now;
  return factors;
}
__device__ __forceinline__ float merged(const Factors& by, float before, float next) {
  return fmaf(next, by.next, before * by.before);
}
__device__ __forceinline__ float4 merged(const Factors& by, const float4& before, const float4& next) {
  return {merged(by, before.x, next.x), merged(by, before.y, next.y), merged(by, before.z, next.z),
          merged(by, before.w, next.w)};
}

// Where the result of a range of a row lies.
__device__ __forceinline__ std::int64_t kept_at(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows,
                                                int row, std::int64_t range) {
  return (rows.token(row) * args.q.dims[1] + rows.head(row)) * kept.n_ranges + range;
}

// Four means of a row, elements d and the next.
__device__ __forceinline__ void store_mean(DType type, std::byte* out, int d, float max, float sum, float4 acc) {
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    store_float(type, out, d + i, max == -INFINITY ? 0.0F : acc.x / sum);
    acc = {acc.y, acc.z, acc.w, 0};
  }
}

// All ranges of the rows, in ascending order. `room`: shared memory for stages * kMergeAhead words of each thread,
// which reads no other's.
template <int width>
inline constexpr int kMergeAhead = width == 64 ? 8 : 16;  // ranges merged at once

template <int width, int threads, int stages>
__device__ __forceinline__ void merge_kept(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows,
                                           int n_ranges, uint4* room) {
  constexpr int kAhead = kMergeAhead<width>;
  constexpr int kHalf = kWarp / 2;
  static_assert(kAhead <= kHalf && width / 4 % kHalf == 0);  // half a warp has one row
  const int tid = static_cast<int>(threadIdx.x);
  const int lane = tid % kWarp;
  const int nth = lane % kHalf;  // of the ranges merged at once
  const int d_v = static_cast<int>(args.out.dims[2]);
  const int n_all = rows.n * width / 4;
#pragma unroll 1
  for (int n = tid; n - lane < n_all; n += threads) {  // whole warps
    const int row = min(n, n_all - 1) / (width / 4);
    const int d = n % (width / 4) * 4;
    const bool is = n < n_all && d < d_v;
    const std::int64_t token = rows.token(row);
    const std::int64_t head = rows.head(row);
    const std::int64_t at = (token * args.q.dims[1] + head) * kept.n_ranges;
    const float* accs = kept.acc + at * d_v + (is ? d : 0);
    const auto* sums = reinterpret_cast<const float2*>(kept.sums + at * 2);
    const auto ask = [&](int first, int stage) {
      const int n_next = min(n_ranges - first, kAhead);
      const float* from = accs + std::int64_t{first} * d_v;
#pragma unroll 4
      for (int i = 0; i < n_next; ++i, from += d_v) {
        copy_16_or_zeros(room + (stage * kAhead + i) * threads + tid, from, is);
      }
      end_copies();
    };
    // Maximum and sum of a range for each lane.
    const auto ask_sums = [&](int first) {
      return nth < kAhead && first + nth < n_ranges ? __ldcg(sums + first + nth) : float2{-INFINITY, 0};
    };
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) ask(stage * kAhead, stage);
    float2 next = ask_sums(0);
    float max = -INFINITY;
    float sum = 0;
    float4 acc{0, 0, 0, 0};
    int stage = 0;
#pragma unroll 1
    for (int first = 0; first < n_ranges; first += kAhead) {
      const float2 own = next;
      next = ask_sums(first + kAhead);
      float now = fmaxf(own.x, max);  // the largest up to the lane's range
#pragma unroll
      for (int step = 1; step < kHalf; step *= 2) {
        const float left = __shfl_up_sync(kAllLanes, now, step);
        if (nth >= step) now = fmaxf(now, left);
      }
      const float left = __shfl_up_sync(kAllLanes, now, 1);
      const Factors own_by{power_of_two((nth == 0 ? max : left) - now), power_of_two(own.x - now)};
      const unsigned sees = __ballot_sync(kAllLanes, own.x != -INFINITY) >> (lane & kHalf);
      max = __shfl_sync(kAllLanes, now, lane | (kHalf - 1));
      await_copies<stages - 1>();
      const int n_next = min(n_ranges - first, kAhead);
#pragma unroll 4
      for (int i = 0; i < n_next; ++i) {
        const int from = (lane & kHalf) + i;
        const Factors by{__shfl_sync(kAllLanes, own_by.before, from), __shfl_sync(kAllLanes, own_by.next, from)};
        const float next_sum = __shfl_sync(kAllLanes, own.y, from);
        if ((sees >> i & 1U) == 0) continue;
        sum = merged(by, sum, next_sum);
        acc = merged(by, acc, reinterpret_cast<const float4*>(room)[(stage * kAhead + i) * threads + tid]);
      }
      ask(first + stages * kAhead, stage);
      stage = stage + 1 == stages ? 0 : stage + 1;
    }
    if (is) store_mean(args.out.type, row_of(args.out, token, head), d, max, sum, acc);
  }
}

// The block's ranges lie in scratch. The last of the `n_blocks` that have some merges them all; the order in which they
// are done decides nothing else. Every thread of the block comes here.
template <int width, int threads, int stages = 1>
__device__ __forceinline__ void merge_if_last(const AttentionArgs& args, const KeptRanges& kept, const Rows& rows,
                                              int n_blocks, int n_ranges, int& last, uint4* room) {
  __syncthreads();
  std::int32_t* ticket = kept.tickets + rows.first_token * args.q.dims[1] + rows.first_head;
  if (threadIdx.x == 0) last = count_in_order(ticket) + 1 == n_blocks ? 1 : 0;
  __syncthreads();
  if (last == 0) return;
  merge_kept<width, threads, stages>(args, kept, rows, n_ranges, room);
  if (threadIdx.x == 0) *ticket = 0;
}

}  // namespace conclave::cuda
