// Where the blocks of `apart` have their rows of queries from: the tensor, or heads that they norm and rotate themselves.
#pragma once

#include "backends/cuda/attention_apart.cuh"
#include "backends/cuda/attention_heads_plan.h"
#include "backends/cuda/head_turn.cuh"
#include "backends/cuda/kv_put.cuh"

namespace conclave::cuda {

template <int width>
struct GivenQueries {
  static constexpr bool kHeads = false;
  const AttentionArgs& args;
  QueryRows<width, kTileRows / kUnitWarps> own;

  __device__ __forceinline__ void ask_weights(const Rows&) {}
  __device__ __forceinline__ void ask(const Rows& rows) {
    own.ask(args, [&](int i) {
      const int row = i * kUnitWarps + static_cast<int>(threadIdx.x) / kWarp;
      return row < rows.n ? row_of(args.q, rows.first_token, rows.first_head + row) : nullptr;
    });
  }
  __device__ __forceinline__ void write(const Rows&, ApartShared<width>& shared) const {
#pragma unroll
    for (int i = 0; i < kTileRows / kUnitWarps; ++i) {
      const int row = i * kUnitWarps + static_cast<int>(threadIdx.x) / kWarp;
      const float factor = own.write(args, i, row, shared.q[0], shared.q[1]);
      if (threadIdx.x % kWarp == 0) shared.factor[row] = factor;
    }
  }
};

// Heads of one token as the products left them. Every block that has a unit makes its queries, and key and value, too.
// Nobody reads those two out of the cache: where a place is the token's own they are taken as fresh rows. The tensors
// are written by the last block that has read the heads, of which there are as many as have a unit.
template <int width>
struct HeadQueries {
  static constexpr bool kHeads = true;
  const AttentionArgs& args;
  const HeadRowsArgs& heads;
  std::int32_t* readers;

  struct Asked {
    Run run;
    RunWords weight;
  };
  Asked asked[2];

  __device__ static int first() { return static_cast<int>(threadIdx.x) % kWarp * kRunLength; }
  __device__ static float2* turns(ApartShared<width>& shared) { return reinterpret_cast<float2*>(shared.weights); }
  // Row n in f32, where the second result comes later.
  __device__ static float* plain(ApartShared<width>& shared, int n) {
    return reinterpret_cast<float*>(&shared.results[1]) + n * width;
  }
  static_assert(sizeof(ApartShared<width>::weights) >= kRopePairs * sizeof(float2));

  // n: a row of queries; then the key; then the value.
  __device__ __forceinline__ RunWords weight_of(const Rows& rows, int n) const {
    const std::byte* weight = n < rows.n ? heads.q_norm.data : heads.k_norm.data;
    const auto d = static_cast<int>(heads.k.dims[2]);
    if (n > rows.n || weight == nullptr || first() >= d) return {};
    return load_words<true>(n < rows.n ? heads.q_norm.type : heads.k_norm.type, weight, first(), d);
  }
  __device__ __forceinline__ void fetch(const Rows& rows, int n, Run& run) const {
    clear_run(run);
    if (n >= rows.n + 2) return;
    const std::byte* row = n < rows.n    ? row_of(heads.rope.x, 0, rows.first_head + n)
                           : n == rows.n ? row_of(heads.k, 0, rows.kv_head)
                                         : row_of(heads.write.v, 0, rows.kv_head);
    const auto d = static_cast<int>(n <= rows.n ? heads.k.dims[2] : heads.write.v.dims[2]);
    if (first() < d) load_run<true>(DType::f32, row, first(), d, run);
  }
  // Of two turns, before the heads are there.
  __device__ __forceinline__ void ask_weights(const Rows& rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      asked[i].weight = weight_of(rows, i * kUnitWarps + static_cast<int>(threadIdx.x) / kWarp);
  }
  __device__ __forceinline__ void ask(const Rows& rows) {
#pragma unroll
    for (int i = 0; i < 2; ++i) fetch(rows, i * kUnitWarps + static_cast<int>(threadIdx.x) / kWarp, asked[i].run);
  }
  // Where the token goes; sines and cosines meanwhile.
  __device__ __forceinline__ DevicePlace find(std::int32_t seq, std::int32_t position, ApartShared<width>& shared) {
    DevicePlace place = ask_place(args.kv, seq, position);
    for (int i = static_cast<int>(threadIdx.x); i < heads.rope.n_rot / 2; i += kTokenThreads) {
      turns(shared)[i] = turn_of(heads.rope, position, i);
    }
    if (place.page >= args.kv.n_pages) place.page = -1;
    if (threadIdx.x == 0) shared.place = place;
    return place;
  }

  // To row `at` of two tiles, as QueryRows does it.
  __device__ __forceinline__ void write_tiles(const Run& run, int at, ApartShared<width>& shared) const {
    float largest = 0;
#pragma unroll
    for (int j = 0; j < kRunLength; ++j) largest = fmaxf(largest, fabsf(run[j]));
    largest = fold_warp(largest, [](float a, float b) { return fmaxf(a, b); });
    const QueryScale scale(args.scale, largest);
    unsigned high[kRunLength / 2];
    unsigned low[kRunLength / 2];
#pragma unroll
    for (int j = 0; j < kRunLength; j += 2) {
      const HalfParts parts = scale.split(run[j], run[j + 1]);
      high[j / 2] = *reinterpret_cast<const unsigned*>(&parts.high);
      low[j / 2] = *reinterpret_cast<const unsigned*>(&parts.low);
    }
    if (first() < width) {
      const int to = tile_piece<width>(at, first() / kRunLength);
      shared.q[0][to] = {high[0], high[1], high[2], high[3]};
      shared.q[1][to] = {low[0], low[1], low[2], low[3]};
    }
    if (first() == 0) shared.factor[at] = scale.factor;
  }
  __device__ __forceinline__ void write(const Rows& rows, ApartShared<width>& shared) {
    const auto d = static_cast<int>(heads.k.dims[2]);
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x) / kWarp; n < rows.n + 2; n += kUnitWarps) {
      const int later = n + 2 * kUnitWarps;
      Run& run = asked[0].run;
      if (n <= rows.n) {
        const DType type = n < rows.n ? heads.q_norm.type : heads.k_norm.type;
        if (heads.q_norm.data != nullptr) norm_short_run(type, asked[0].weight, d, heads.eps, run);
        rotate_run(heads.rope, turns(shared), plain(shared, n), first(), d, run);
        __syncwarp();
        if (first() < d) {
          store_run<true>(DType::f32, reinterpret_cast<std::byte*>(plain(shared, n)), first(), d, run);
        }
      }
      if (n < rows.n) {
        write_tiles(run, n, shared);
      } else if (first() < width) {
        put_run(DType::f16, reinterpret_cast<std::byte*>(shared.fresh[n - rows.n]), first(), run);
      }
      asked[0] = asked[1];
      if (later < rows.n + 2) {
        asked[1].weight = weight_of(rows, later);
        fetch(rows, later, asked[1].run);
      }
    }
  }
  // How many have read the heads before this block; for its first thread, after a barrier. Nothing waits for the number
  // yet, and nothing has to be seen of it: what was read is in shared memory.
  __device__ __forceinline__ int count(const Rows& rows) const {
    return atomicAdd(readers + rows.kv_head, 1);
  }
  // To the tensors and the cache: by one block, after all have read the heads.
  __device__ __forceinline__ void leave(ApartShared<width>& shared) const {
    const Rows& rows = shared.rows;
    const DevicePlace place = shared.place;
    if (threadIdx.x == 0) readers[rows.kv_head] = 0;
    const auto d = static_cast<int>(heads.k.dims[2]);
#pragma unroll 1
    for (int n = static_cast<int>(threadIdx.x) / kWarp; n < rows.n + 2; n += kUnitWarps) {
      const bool of_q = n < rows.n;
      if (n <= rows.n && first() < d) {
        Run run;
        load_run<true>(DType::f32, reinterpret_cast<const std::byte*>(plain(shared, n)), first(), d, run);
        std::byte* row = of_q ? row_of(heads.rope.x, 0, rows.first_head + n) : row_of(heads.k, 0, rows.kv_head);
        store_run<true>(DType::f32, row, first(), d, run);
      }
      if (of_q || place.page < 0) continue;
      const View& pool = n == rows.n ? args.k : args.v;
      std::byte* to = row_of(pool, place.page, place.slot, rows.kv_head);
      if (first() < static_cast<int>(pool.dims[3])) {
        *reinterpret_cast<uint4*>(to + first() * 2) = shared.fresh[n - rows.n][first() / kRunLength];
      }
    }
  }
  // Fresh rows among the warp's eight positions of a unit.
  __device__ __forceinline__ void patch(const UnitPlaces& places, uint4* keys, uint4* values,
                                        const ApartShared<width>& shared) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int at = static_cast<int>(threadIdx.x) / kWarp * 8;
    unsigned left = __ballot_sync(kAllLanes, lane < 8 && places.k[at + lane % 8] >= kFreshRow);
#pragma unroll 1
    for (int row = at; left != 0; left >>= 1, ++row) {
      if ((left & 1U) == 0 || lane >= width / 8) continue;
      keys[tile_piece<width>(row, lane)] = shared.fresh[0][lane];
      values[tile_piece<width>(row, lane)] = shared.fresh[1][lane];
    }
  }
};

}  // namespace conclave::cuda
