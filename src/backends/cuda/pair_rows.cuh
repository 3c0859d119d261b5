// The rows of a block's lists on their way to shared memory (pair_lists_plan.h).
#pragma once

#include "backends/cuda/pair_find.cuh"
#include "backends/cuda/quantize.cuh"

namespace conclave::cuda {

// The rows of a block's lists, int8, in shared memory.
template <DType type>
struct BlockRows {
  std::byte* at;
  float* scales;

  __device__ __forceinline__ BlockRows(std::byte* to, int chunks)
      : at(to), scales(reinterpret_cast<float*>(to + kBlockLists * kListRows * chunks * row_chunk_bytes(type))) {}

  __device__ __forceinline__ void put(int place, int low, int high, float scale) const {
    constexpr int kLanes = group_length(type) / 8;
    const int lane = threadIdx.x % kWarp;
    std::byte* const chunk = at + place * row_chunk_bytes(type);
    reinterpret_cast<int2*>(chunk)[lane] = make_int2(low, high);
    int sum = __dp4a(low, 0x01010101, __dp4a(high, 0x01010101, 0));
#pragma unroll
    for (int apart = 1; apart < kLanes; apart *= 2) sum += __shfl_xor_sync(kAllLanes, sum, apart);
    if (lane % kLanes == 0) {
      reinterpret_cast<std::int16_t*>(chunk + kChunk)[lane / kLanes] = static_cast<std::int16_t>(sum);
    }
    if (lane == 0) scales[place] = scale;
  }
};

// Some chunks of rows on their way to shared memory through a warp's registers. All warps together bring all of them.
template <DType type, bool kGateUp>
struct ChunksOnTheWay {
  static constexpr int kTogether = kGateUp ? 4 : 2;
  const OneRowArgs& args;
  const PairCut& cut;
  const PairShared& shared;
  int rows_0;  // of the first part
  int all;     // chunks
  int next;    // of the warp
  int2 q[kTogether];
  float scale[kTogether];
  float v[kTogether][8];
  int place[kTogether];

  __device__ __forceinline__ ChunksOnTheWay(const OneRowArgs& of, const PairCut& by, const PairShared& in)
      : args(of), cut(by), shared(in), next(static_cast<int>(threadIdx.x) / kWarp) {
    const auto rows_of = [&](int part) { return in.parts[part].count > 0 ? in.parts[part].rows : 0; };
    rows_0 = rows_of(0);
    all = (rows_0 + rows_of(1)) * args.chunks;
  }
  __device__ __forceinline__ void ask() {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int j = 0; j < kTogether; ++j) {
      const int i = next + j * kPairWarps;
      if (i >= all) break;
      const int row = i * cut.by_chunks >> 16;
      const int c = i - row * args.chunks;
      const int part = row < rows_0 ? 0 : 1;
      const int r = row - part * rows_0;
      const int from = shared.parts[part].pair[r] * cut.by_step >> 16;
      place[j] = (part * kListRows + r) * args.chunks + c;
      if constexpr (kGateUp) {
        const std::int64_t chunk = std::int64_t{from} * args.chunks + c;
        q[j] = __ldcg(reinterpret_cast<const int2*>(args.q + chunk * kChunk) + lane);
        scale[j] = __ldcg(args.scale + chunk);
      } else {
        load_chunk(DType::f32, reinterpret_cast<const std::byte*>(args.x + from * args.x_stride), c, args.k, lane,
                   v[j]);
      }
    }
  }
  // What was asked for is put, then the rest.
  __device__ __forceinline__ void put(const BlockRows<type>& rows) {
#pragma unroll 1
    while (next < all) {
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (next + j * kPairWarps >= all) break;
        if constexpr (kGateUp) {
          rows.put(place[j], q[j].x, q[j].y, scale[j]);
        } else {
          const QuantizedLane made = quantize_lane(v[j]);
          rows.put(place[j], made.low, made.high, made.scale);
        }
      }
      next += kTogether * kPairWarps;
      ask();
    }
  }
};

}  // namespace conclave::cuda
