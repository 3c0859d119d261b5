// A warp's own tiles, superblock by superblock: the same whoever fetches the weights (few_rows, few_boxes).
#pragma once

#include "backends/cuda/few_copies.cuh"
#include "backends/cuda/few_store.cuh"
#include "backends/cuda/lane_product.cuh"

namespace conclave::cuda {

// A lane's rows: those of the first superblock of a segment.
struct LaneRows {
  const std::byte* q;
  const float* scale;

  template <int kTiles, class Rows>
  static __device__ __forceinline__ LaneRows find(const TileRun& run, int item, const Rows& rows) {
    const int lane = threadIdx.x % kWarp;
    const int next = run.is_next(item) ? 1 : 0;
    // Lanes without a row read another's: what many lanes read is read once.
    const int row = next * kRowTile + (kTiles == 1 ? min(lane / 4, run.rows[next] - 1) : lane / 4);
    return {rows.q + row * Rows::kStride + 16 * (lane % 4), rows.scale + next * kRowTile + 2 * (lane % 4)};
  }
};

// What a superblock adds to the outputs: y + add - less.
template <DType type, int kTiles, int kSegment, class Take>
__device__ __forceinline__ void multiply_tile(const LaneWeights<type>& w, const LaneRows& at, int slot, Take&& take) {
  constexpr int kStride = few_row_stride(kSegment);
  int sum[kTiles][4];
  float low[kTiles][4];
  w.template multiply<kTiles, kStride>(at.q + slot * kChunk, sum);
  if constexpr (is_affine(type)) {
    w.template multiply_mins<kTiles, kStride>(at.q + few_sums(kSegment, slot), low);
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const float2 by = *reinterpret_cast<const float2*>(at.scale + slot * 2 * kRowTile + t * kRowTile);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float scale = e % 2 == 0 ? by.x : by.y;
      const float add = (scale * w.d(e / 2)) * static_cast<float>(sum[t][e]);
      float less = 0.0F;
      if constexpr (is_affine(type)) less = (scale * w.dmin(e / 2)) * low[t][e];
      take(t, e, add, less);
    }
  }
}
template <DType type>
__device__ __forceinline__ void add_to(float& y, float add, float less) {
  y = y + add;
  if constexpr (is_affine(type)) y = y - less;
}

// What a warp has while it works on a list.
template <DType type, class Fetch, int kSegment>
struct FewWork {
  const UnitArgs& args;
  Fetch& fetcher;
  const std::byte* rings;
  const StagedRows<kSegment>& rows;
  const TableSlot* slots;

  // Superblocks c0 .. c0 + count - 1 of the rows, by all warps. Those of a second list are the second tile of rows. With
  // the first of a run, `fills`, the weights after the first ones are asked for: first ones and rows are wanted sooner.
  __device__ __forceinline__ void stage_segment(int c0, int count, bool fills) const {
    const int warp = threadIdx.x / kWarp;
    const int inverse = 65536 / count + 1;
    const int first = fetcher.run.rows[0];
    const int places = (first + fetcher.run.rows[1]) * count;
    const auto where = [&](int i) {
      const int place = warp + i * kFewWarps;
      const int r = place * inverse >> 16;  // place / count: exact for so few
      return RowPlace{r < first ? r : r - first + kRowTile, place - r * count, c0 + place - r * count};
    };
    stage_rows<type>(args, slots, (places - warp + kFewWarps - 1) / kFewWarps, rows, where, [&] {
      if (fills) fetcher.fill(args);
    });
  }

  // All items of a run, each by a warp alone. All warps take part in all rounds.
  template <int kTiles>
  __device__ __forceinline__ void multiply_own() const {
    const TileRun& run = fetcher.run;
    const int span = Fetch::span(args);
#pragma unroll 1
    for (int item = threadIdx.x / kWarp; item / kFewWarps * kFewWarps < run.end; item += kFewWarps) {
      const bool is_first = item < kFewWarps;
      float y[kTiles][4] = {};
#pragma unroll 1
      for (int c0 = 0; c0 < args.chunks; c0 += kSegment) {
        const int count = min(args.chunks - c0, kSegment);
        if (args.chunks > kSegment || is_first) {  // else they are there
          if (c0 > 0 || !is_first) __syncthreads();
          stage_segment(c0, count, is_first && c0 == 0);
          __syncthreads();
        }
        if (item >= run.end) continue;
        const LaneRows at = LaneRows::find<kTiles>(run, item, rows);
        const typename Fetch::Place columns = fetcher.place(run.columns(args, item));
#pragma unroll 1
        for (int c = 0; c < count;) {
          const int end = min(c + span, count);
          fetcher.await(args);
#pragma unroll 1
          for (int i = 0; c < end; ++c, ++i) {
            multiply_tile<type, kTiles, kSegment>(
                fetcher.weights(rings, columns, c0 + c, i), at, c,
                [&](int t, int e, float add, float less) { add_to<type>(y[t][e], add, less); });
          }
          fetcher.release(args);
        }
      }
      if (item < run.end) {
        store_tile<kTiles>(run.columns(args, item), Fetch::first_column(), slots + (run.is_next(item) ? kRowTile : 0),
                           y);
      }
    }
  }
};

}  // namespace conclave::cuda
