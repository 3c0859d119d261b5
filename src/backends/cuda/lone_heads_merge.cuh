// How the blocks of lone_heads_plan.h send each other what their units come to, and merge it.
#pragma once

#include "backends/cuda/lone_heads.cuh"

namespace conclave::cuda {

// Eight bytes to a block's shared memory, which the barrier there counts.
__device__ __forceinline__ void send(unsigned to, float a, float b, unsigned barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to), "f"(a),
               "f"(b), "r"(barrier)
               : "memory");
#endif
}
// What the blocks of the cluster sent is there.
__device__ __forceinline__ void await_sent(std::uint64_t* barrier) {
  unsigned there = 1;
  do {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, "
        "p;\n}"
        : "=r"(there)
        : "r"(shared_address(barrier))
        : "memory");
#endif
  } while (there == 0);
}

// What positions have come to for one element of a row.
struct MergedElement {
  float max = -INFINITY;
  float sum = 0;
  float acc = 0;

  __device__ __forceinline__ void add(float next_max, float next_sum, float next_acc) {
    const bool sees = next_max != -INFINITY;
    const Factors by = merge_factors(max, next_max);
    sum = sees ? merged(by, sum, next_sum) : sum;
    acc = sees ? merged(by, acc, next_acc) : acc;
  }
};

// The units of a range, in ascending order.
__device__ __forceinline__ MergedElement merge_range(const float* results, const float2* sums, int n) {
  return merge_in_order<MergedElement>(
      n, [&](int i) { return sums[i]; }, [&](int i) { return results[i * kLonePart]; });
}

// All units, for an element of the part: the first kLonePart threads have it.
__device__ __forceinline__ MergedElement merge_units(LoneHeadsShared& shared, int max_units, int n_units) {
  constexpr int kGroups = kTokenThreads / kLonePart;
  const int d = static_cast<int>(threadIdx.x) % kLonePart;
  const int group = static_cast<int>(threadIdx.x) / kLonePart;
  const int n_ranges = (n_units + kRangeUnits - 1) / kRangeUnits;
  float* const results = shared.results() + d;
  const float2* const sums = shared.sums(max_units);
  MergedElement total;
#pragma unroll 1
  for (int range = group; range < n_ranges; range += kGroups) {
    const int first = range * kRangeUnits;
    const MergedElement next = merge_range(results + first * kLonePart, sums + first, n_units - first);
    if (n_ranges == 1) {
      total.add(next.max, next.sum, next.acc);
    } else {
      results[first * kLonePart] = next.acc;
      if (d == 0) shared.range_sums[range] = {next.max, next.sum};
    }
  }
  if (n_ranges <= 1) return total;
  __syncthreads();
  if (group > 0) return total;
#pragma unroll 4
  for (int range = 0; range < n_ranges; ++range) {
    const float2 sum = shared.range_sums[range];
    total.add(sum.x, sum.y, results[range * kRangeUnits * kLonePart]);
  }
  return total;
}

// Where the results of a lane's row go: half of it to each of two blocks.
struct LoneMerger {
  unsigned part;
  unsigned sums;
  unsigned barrier;

  __device__ __forceinline__ LoneMerger(LoneHeadsShared& shared, int max_units) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int block = lane / 4 * 2 + warp / 4;
    part = address_in_block(shared.results() + warp % 4 * 16 + lane % 4 * 2, block);
    sums = address_in_block(shared.sums(max_units), block);
    barrier = address_in_block(shared.arrived, block);
  }
  __device__ __forceinline__ void take(int unit, const float (&acc)[kValueTiles<kLoneHeadWidth>][4], float max,
                                       float sum) const {
#pragma unroll
    for (int t = 0; t < kValueTiles<kLoneHeadWidth>; ++t) {
      send(part + (unit * kLonePart + t * 8) * 4, acc[t][0], acc[t][1], barrier);
    }
    if (threadIdx.x / kWarp % 4 == 0 && threadIdx.x % 4 == 0) send(sums + unit * 8, max, sum, barrier);
  }
};

}  // namespace conclave::cuda
