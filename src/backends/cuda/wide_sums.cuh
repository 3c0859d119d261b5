// One superblock of wide_rows: multiplied, and added to the outputs of a warpgroup.
#pragma once

#include "backends/cuda/wide_copies.cuh"
#include "backends/cuda/wide_levels.cuh"

namespace conclave::cuda {

// Whether there are registers to have words of a superblock, those of two pairs, before the one before it is done.
constexpr bool words_ahead(int rows) {
  return rows != kShortRows;
}

// 64 columns times N rows of one superblock, each digit's sums apart: whole(i) are exact, after wgmma_wait<0>().
template <DType type, int kRows, int N>
class WideSums {
 public:
  __device__ __forceinline__ void multiply(const WideStage<type, kRows>& stage, WideWords<type>& words, int column,
                                           int lane) {
    constexpr int kFragments = kRows == kShortRows ? 1 : 2;
    const WideLevels<type> levels{words};
    const std::uint64_t rows = rows_descriptor(shared_address(stage.at));
    unsigned high[kFragments][2][4];  // what wgmma still reads is left alone
    unsigned low[kFragments][2][4];
    const auto load_pair = [&](int j) { words.load_pair(stage.column(column), wide_column_stride(type), lane, j); };
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (!words_ahead(kRows)) load_pair(j);
      levels.pair(j, high[j % kFragments], low[j % kFragments]);
      wgmma_fence();
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int step = pair_step<type>(j, e);
        const std::uint64_t at = descriptor_at(rows, step / 4 * wide_half(kRows) + step % 4 * 32);
        if (j + e == 0) {
          wgmma_s8<N, !is_affine(type), false>(high_, high[0][0], at);
          wgmma_s8<N, false, false>(low_, low[0][0], at);
        } else {
          wgmma_s8<N, !is_affine(type), true>(high_, high[j % kFragments][e], at);
          wgmma_s8<N, false, true>(low_, low[j % kFragments][e], at);
        }
      }
      wgmma_commit();
      if (words_ahead(kRows) && j == 1) {
        load_pair(2);
        load_pair(3);
      }
      if (j < 3) wgmma_wait<kFragments - 1>();
    }
  }

  __device__ __forceinline__ int whole(int i) const {
    return high_[i] * (1 << kDigitBits<type>)+low_[i];
  }

 private:
  int high_[N / 2] = {};
  int low_[N / 2] = {};
};

// What a lane's two columns multiply their sums with.
template <DType type>
struct WideFactors {
  float d[2];
  float dmin[2];
  unsigned mins[4];  // the left operand of wgmma_f16

  template <int kRows>
  __device__ __forceinline__ WideFactors(const WideStage<type, kRows>& stage, const WideWords<type>& words, int c,
                                         int column, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if constexpr (is_affine(type)) {
        d[half] = half_of(words.head[half].x);
        dmin[half] = half_of(words.head[half].x >> 16);
      } else {
        d[half] = half_of(wide_word(stage.d(column + 8 * half)) >> 16 * (c & 1));
      }
    }
    if constexpr (is_affine(type)) words.mins(lane, mins);
  }

 private:
  static __device__ __forceinline__ float half_of(unsigned bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
};

// Adds a superblock to the outputs, in the steps of product_plan.h. A lane's scales come four at a time, of two tiles
// of eight rows.
template <DType type, int kRows, int N>
class WideAdder {
 public:
  __device__ __forceinline__ WideAdder(const WideStage<type, kRows>& stage, const WideFactors<type>& by, int lane)
      : stage_(stage), by_(by), scales_(reinterpret_cast<const float4*>(stage.scales()) + lane % 4) {}

  // `between` is done on the way.
  template <class Between>
  __device__ __forceinline__ void add(const WideSums<type, kRows, N>& products, float (&y)[N / 2],
                                      const Between& between) const {
    if constexpr (!is_affine(type)) {
      between();
      add_sums<0, N>(products, y);
    } else {
      // Half of the minimums' sums after the other: there are no registers for all. They come while sums are added.
      float low[2][N / 4];
      sum_mins<0>(low[0]);
      add_sums<0, N / 2>(products, y);
      sum_mins<N / 2>(low[1]);
      between();
      add_sums<N / 2, N>(products, y);
      wgmma_wait<1>();
      subtract<0>(low[0], y);
      wgmma_wait<0>();
      subtract<N / 2>(low[1], y);
    }
  }

 private:
  template <int kFirst>
  __device__ __forceinline__ void sum_mins(float (&low)[N / 4]) const {
    wgmma_fence();
    wgmma_f16<N / 2>(low, by_.mins, sums_descriptor(shared_address(stage_.sums(kFirst))));
    wgmma_commit();
  }
  // Of rows kFirst to kEnd - 1, each output of the lane: its place, its row's scale, which of the two columns it is of.
  template <int kFirst, int kEnd, class Each>
  __device__ __forceinline__ void for_rows(const Each& each) const {
#pragma unroll
    for (int two = kFirst / 16; two < kEnd / 16; ++two) {
      const float4 four = scales_[4 * two];
      const float scale[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 8; ++i) each(8 * two + i, scale[i / 4 * 2 + i % 2], i / 2 % 2);
    }
  }
  template <int kFirst, int kEnd>
  __device__ __forceinline__ void add_sums(const WideSums<type, kRows, N>& products, float (&y)[N / 2]) const {
    for_rows<kFirst, kEnd>([&](int at, float scale, int column) {
      y[at] = y[at] + (scale * by_.d[column]) * static_cast<float>(products.whole(at));
    });
  }
  template <int kFirst>
  __device__ __forceinline__ void subtract(const float (&low)[N / 4], float (&y)[N / 2]) const {
    for_rows<kFirst, kFirst + N / 2>(
        [&](int at, float scale, int column) { y[at] = y[at] - (scale * by_.dmin[column]) * low[at - kFirst / 2]; });
  }

  const WideStage<type, kRows>& stage_;
  const WideFactors<type>& by_;
  const float4* scales_;
};

}  // namespace conclave::cuda
