// What a block of `apart` has in shared memory, and how it merges.
#pragma once

#include "backends/cuda/attention_few.cuh"
#include "backends/cuda/cluster.cuh"

namespace conclave::cuda {

inline constexpr int kBlockRows =
    kTileRows / kRangeUnits;              // that a block merges: neighbours, so that they make a chunk
inline constexpr int kRangesAtOnce = 64;  // that are brought from scratch to be merged
inline constexpr int kChunkLength = 256;  // of a row as int8
static_assert(kApartCopies == 5 && kBlockRows == 2);

// What a unit has come to for each row.
template <int width>
struct UnitResult {
  float acc[kTileRows][width + 8];  // eight rows lie in different banks
  float2 sums[kTileRows];           // maximum, sum

  // The lane's two rows, and the warp's part of d_v.
  __device__ __forceinline__ void put(const float (&max)[2], const float (&sum)[4],
                                      const float (&part)[kValueTiles<width>][4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane / 4 + 8 * r;
#pragma unroll
      for (int n = 0; n < kValueTiles<width>; ++n) {
        const int d = (warp * kValueTiles<width> + n) * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(&acc[row][d]) = {part[n][2 * r], part[n][2 * r + 1]};
      }
      if (warp == 0 && lane % 4 == 0) sums[row] = {max[r], sum[2 * r]};
    }
  }
};
static_assert(sizeof(UnitResult<128>) == apart_result_bytes(128));

template <int width>
struct ApartShared {
  uint4 q[2][kTileRows * width / 8];            // high and low parts
  uint4 ring[kApartCopies][kUnit * width / 8];  // keys and values in turns
  uint4 weights[kTileRows][kWeightPieces];
  UnitPlaces places[kFound];
  UnitResult<width> results[2];
  float4 max[kTileRows][kUnitWarps / 4];  // of what a row sees, by each warp
  float factor[kTileRows];
  int last;
  Rows rows;
};
static_assert(sizeof(ApartShared<64>) == apart_attention_shared(64));
static_assert(sizeof(ApartShared<128>) == apart_attention_shared(128));
static_assert(sizeof(ApartShared<256>) == apart_attention_shared(256));

// What positions have come to for one element of a row.
struct Merged {
  float max = -INFINITY;
  float sum = 0;
  float acc = 0;

  __device__ __forceinline__ void add(float next_max, float next_sum, float next_acc) {
    if (next_max == -INFINITY) return;
    const Factors by = merge_factors(max, next_max);
    sum = merged(by, sum, next_sum);
    acc = merged(by, acc, next_acc);
  }
};

// The elements that a thread merges.
template <int width>
struct OwnElements {
  static constexpr int kCount = (kBlockRows * width + kTokenThreads - 1) / kTokenThreads;
  int rank;
  int n_rows;
  int d_v;
  Merged total[kCount];

  __device__ __forceinline__ int nth_row(int e) const {
    return (static_cast<int>(threadIdx.x) + e * kTokenThreads) / width;
  }
  __device__ __forceinline__ int row(int e) const { return rank * kBlockRows + nth_row(e); }
  __device__ __forceinline__ int d(int e) const { return (static_cast<int>(threadIdx.x) + e * kTokenThreads) % width; }
  __device__ __forceinline__ bool is(int e) const { return nth_row(e) < kBlockRows && row(e) < n_rows && d(e) < d_v; }

  // The `n` units of a range, in ascending order, out of the blocks that have them.
  __device__ __forceinline__ Merged range_of(int e, const UnitResult<width>& result, int n) const {
    const auto offset = [&](const void* p) {
      return static_cast<unsigned>(static_cast<const char*>(p) - reinterpret_cast<const char*>(&result));
    };
    const unsigned acc_at = offset(&result.acc[row(e)][d(e)]);
    const unsigned sums_at = offset(&result.sums[row(e)]);
    float2 sums[kRangeUnits];
    float acc[kRangeUnits];
#pragma unroll
    for (int i = 0; i < kRangeUnits; ++i) {
      sums[i] = {-INFINITY, 0};
      acc[i] = 0;
      if (i >= n) continue;
      const unsigned there = address_in_block(&result, i);
      sums[i] = load_2_in_cluster(there + sums_at);
      acc[i] = load_in_cluster(there + acc_at);
    }
    Merged range;
#pragma unroll
    for (int i = 0; i < kRangeUnits; ++i) range.add(sums[i].x, sums[i].y, acc[i]);
    return range;
  }
  // All ranges of the block's rows, in ascending order, out of scratch. `room` has 2 * 64 rows of floats, `factors` 2 *
  // 64 of their kind. By the whole block.
  __device__ __forceinline__ void merge_ranges(const float* accs, const float* sums, const KeptRanges& kept,
                                               int n_ranges, uint4* room, float4* factors) {
    constexpr int kPieces = width / 4;
    const int tid = static_cast<int>(threadIdx.x);
    const int warp = tid / kWarp;
    const int lane = tid % kWarp;
    const int n_own = min(kBlockRows, n_rows - rank * kBlockRows);
    const std::int64_t row_step = kept.n_ranges;
    float upto = -INFINITY;  // the largest so far, of the warp's row
#pragma unroll 1
    for (int first = 0; first < n_ranges; first += kRangesAtOnce) {
      const int n = min(kRangesAtOnce, n_ranges - first);
      const int nth = tid / kPieces % kBlockRows;
      const int piece = tid % kPieces;
      const bool wanted = nth < n_own && piece * 4 < d_v;
#pragma unroll 4
      for (int i = tid / kPieces / kBlockRows; i < n; i += kTokenThreads / kPieces / kBlockRows) {
        copy_16_or_zeros(room + (i * kBlockRows + nth) * kPieces + piece,
                         accs + (wanted ? (nth * row_step + first + i) * d_v + piece * 4 : 0), wanted);
      }
      end_copies();
      if (warp < n_own) {
        float2 own[kRangesAtOnce / kWarp];
#pragma unroll
        for (int j = 0; j < kRangesAtOnce / kWarp; ++j) {
          const int i = j * kWarp + lane;
          own[j] = {-INFINITY, 0};
          if (i < n) own[j] = __ldcg(reinterpret_cast<const float2*>(sums + (warp * row_step + first + i) * 2));
        }
#pragma unroll
        for (int j = 0; j < kRangesAtOnce / kWarp; ++j) {
          float now = lane == 0 ? fmaxf(upto, own[j].x) : own[j].x;
#pragma unroll
          for (int step = 1; step < kWarp; step *= 2) {
            const float left = __shfl_up_sync(kAllLanes, now, step);
            if (lane >= step) now = fmaxf(now, left);
          }
          const float left = __shfl_up_sync(kAllLanes, now, 1);
          const float before = lane == 0 ? upto : left;
          upto = __shfl_sync(kAllLanes, now, kWarp - 1);
          // A range in which nothing is seen: a maximum of -infinity says so.
          const bool sees = own[j].x != -INFINITY;
          factors[warp * kRangesAtOnce + j * kWarp + lane] = {power_of_two(before - now), power_of_two(own[j].x - now),
                                                              own[j].y, sees ? now : -INFINITY};
        }
      }
      await_copies<0>();
      __syncthreads();
#pragma unroll
      for (int e = 0; e < kCount; ++e) {
        if (!is(e)) continue;
        const float* next = reinterpret_cast<const float*>(room) + nth_row(e) * width + d(e);
        const float4* by = factors + nth_row(e) * kRangesAtOnce;
#pragma unroll 4
        for (int i = 0; i < n; ++i, next += kBlockRows * width) {
          const float4 f = by[i];
          if (f.w == -INFINITY) continue;
          total[e].max = f.w;
          total[e].sum = merged({f.x, f.y}, total[e].sum, f.z);
          total[e].acc = merged({f.x, f.y}, total[e].acc, *next);
        }
      }
      __syncthreads();  // the room is free
    }
  }
};

// A chunk as int8, an element of each thread of a block: as quantize_lane() and put_in_bank() have it. `at`: of the
// first element, in the bank. Every thread of the block comes here.
__device__ __forceinline__ void put_chunk_in_bank(const BankOut& bank, std::int64_t at, float v) {
  static_assert(kTokenThreads == kChunkLength);
  __shared__ unsigned largest_of[kUnitWarps];
  const int tid = static_cast<int>(threadIdx.x);
  const unsigned of_warp = __reduce_max_sync(kAllLanes, __float_as_uint(fabsf(v)));
  if (tid % kWarp == 0) largest_of[tid / kWarp] = of_warp;
  __syncthreads();
  unsigned bits = 0;  // magnitudes compare as integers, and those that are not finite are the largest
#pragma unroll
  for (int i = 0; i < kUnitWarps; ++i) bits = max(bits, largest_of[i]);
  const float largest = __uint_as_float(bits);
  const bool usable = isfinite(largest) && (largest == 0.0F || largest >= 0x1p-100F);
  const float step = usable ? largest / 127.0F : 0.0F;
  const float inverse = step > 0.0F ? 1.0F / step : 0.0F;
  const int q = usable ? __float2int_rn(v * inverse) : 0;
  int sum = q;
#pragma unroll
  for (int other = 1; other < 16; other *= 2) sum += __shfl_xor_sync(kAllLanes, sum, other);
  bank.q[at + tid] = static_cast<std::int8_t>(q);
  if (tid == 0) bank.scale[at / kChunkLength] = usable ? step : NAN;
  if (tid % 16 == 0) bank.sums[(at + tid) / 16] = __half_as_ushort(__int2half_rn(sum));
}

}  // namespace conclave::cuda
