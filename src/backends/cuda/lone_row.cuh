// Pieces of the kernels of lone_row_plan.h.
#pragma once

#include "backends/cuda/bulk_copy.cuh"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/lone_row_plan.h"
#include "backends/cuda/plain_dot.cuh"
#include "backends/cuda/quarter_unit.cuh"
#include "backends/cuda/row_ops.cuh"

namespace conclave::cuda {

// A block's shared memory.
struct LoneBlock {
  std::byte* base;
  const LoneSpace& at;

  __device__ __forceinline__ uint4* row() const { return reinterpret_cast<uint4*>(base); }
  __device__ __forceinline__ float* scales() const { return reinterpret_cast<float*>(base + at.scales); }
  __device__ __forceinline__ int2* sums() const { return reinterpret_cast<int2*>(base + at.sums); }
  __device__ __forceinline__ float* floats() const { return reinterpret_cast<float*>(base + at.floats); }
  __device__ __forceinline__ float2* terms(unsigned warp) const {
    return reinterpret_cast<float2*>(base + at.terms) + warp * at.held * at.item_units;
  }
  __device__ __forceinline__ std::uint64_t* barriers(unsigned warp) const {
    return reinterpret_cast<std::uint64_t*>(base + at.barriers) + warp * kLoneAhead;
  }
  __device__ __forceinline__ std::byte* ring(unsigned warp) const {
    return base + at.ring + warp * at.ahead * at.item_bytes;
  }
};

// Sixteen int8 of a row, piece p of superblock u: where they lie, in pieces. Lanes that read one each at once, of two
// superblocks, find them in different banks, whichever of the two ways to quarter a superblock is theirs.
__device__ __forceinline__ unsigned lone_piece(unsigned u, unsigned p) {
  return (u / 2) * 32 + (p % 4) * 8 + (u % 2) * 4 + (p / 8) * 2 + ((p / 4 ^ p) & 1);
}

// A lane's 64 values of a row, and the sums of its groups.
template <DType type>
struct LoneQuarter {
  int word[16];
  int sum[2];
  float scale;

  __device__ __forceinline__ void load(const LoneBlock& block, unsigned u, unsigned t) {
    // lone_piece() of QuarterUnit::place(), with what lanes have of their own apart from what differs by piece.
    const uint4* from = block.row() + (u / 2) * 32 + (u % 2) * 4 + (t / 2) * 2;
    const unsigned odd = t % 2;
    const uint4* even = from + (is_affine(type) ? odd : 9 * odd);
    const uint4* other = from + (is_affine(type) ? 8 + (odd ^ 1) : 8 * odd + (odd ^ 1));
    const uint4 x[4] = {even[0], is_affine(type) ? other[0] : even[16], is_affine(type) ? even[16] : other[0],
                        other[16]};
#pragma unroll
    for (int i = 0; i < 16; ++i) word[i] = word_of(x[i / 4], i % 4);
    scale = block.scales()[u];
    if constexpr (is_affine(type)) {
      const int2 both = block.sums()[4 * u + t];
      sum[0] = both.x;
      sum[1] = both.y;
    }
  }
};

// Eight values of each lane, a superblock in all, as int8 into place u. Whether they have no int8 form.
__device__ __forceinline__ bool put_superblock(const LoneBlock& block, unsigned u, const float* v) {
  const unsigned lane = threadIdx.x % kWarp;
  const QuantizedLane q = quantize_lane(v);
  reinterpret_cast<int2*>(block.row() + lone_piece(u, lane / 2))[lane % 2] = make_int2(q.low, q.high);
  int sum = sum_of_two(q);  // of 16
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if (lane % 4 == 0) reinterpret_cast<int*>(block.sums())[8 * u + lane / 4] = sum;
  if (lane == 0) block.scales()[u] = q.scale;
  return isnan(q.scale);
}

// Eight values of each lane of the warp whose chunk of the row they are; elsewhere nothing.
struct LoneRun {
  Run v;
  Run weight;
  unsigned i;  // the lane's first
  bool has;

  // What can be asked for before the row is there.
  __device__ __forceinline__ explicit LoneRun(const LoneRow& row) {
    i = kRunLength * threadIdx.x;
    has = i < static_cast<unsigned>(row.k);
    clear_run(v);
    if (has && row.norm_weight != nullptr) {
      load_run<true>(DType::f32, reinterpret_cast<const std::byte*>(row.norm_weight), i, row.k, weight);
    }
  }
  __device__ __forceinline__ void load(const float* x) {
    if (has) load_run<true>(DType::f32, reinterpret_cast<const std::byte*>(x), i, 0, v);
  }
  // By all threads of the block. `keep`: where the whole normed row is put; block 0 leaves it in row.normed, too.
  __device__ __forceinline__ void norm(const LoneRow& row, bool live, float* keep, float* of_warp) {
    const unsigned lane = threadIdx.x % kWarp;
    const unsigned warp = threadIdx.x / kWarp;
    const NormScale scale = norm_scale(row.k, row.eps, [&](float factor) {
      float sum = 0;
      add_squares(v, factor, sum);
      sum = fold_warp(sum, [](float a, float b) { return a + b; });
      __syncthreads();
      if (lane == 0) of_warp[warp] = sum;
      __syncthreads();
      float all = of_warp[0];
      for (int w = 1; w < row.k / kChunk; ++w) all += of_warp[w];
      return all;
    });
    if (!has) return;
    norm_run(v, weight, scale, v);
    store_run<true>(DType::f32, reinterpret_cast<std::byte*>(keep), i, 0, v);
    if (blockIdx.x == 0 && live) store_run<true>(DType::f32, reinterpret_cast<std::byte*>(row.normed), i, 0, v);
  }
};

// What eight superblocks of a column add to its output: four lanes have one each. `has`: whether the lane has one.
template <DType type>
__device__ __forceinline__ void multiply_units(const std::byte* column, const typename QuarterUnit<type>::Place& place,
                                               bool has, const LoneQuarter<type>& row, float2* term) {
  const unsigned t = threadIdx.x % 4;
  QuarterUnit<type> unit;
  unit.template load<true>(column, place);
  QuarterLevels<type> levels;
  unit.unpack(t, levels);
  const float y = superblock_product<type>(unit, levels, row, t);
  if (has && t < (is_affine(type) ? 2 : 1)) reinterpret_cast<float*>(term)[t] = y;
}

// What the superblocks of a column come to, in their order.
template <DType type>
__device__ __forceinline__ float column_total(const float2* terms, int chunks) {
  float y = 0.0F;
#pragma unroll 8
  for (int c = 0; c < chunks; ++c) {
    const float2 term = terms[c];
    const float sum = y + term.x;
    y = is_affine(type) ? sum - term.y : sum;
  }
  return y;
}

#if CONCLAVE_HOPPER
// The items of a warp, of those of the block from `first` to `last`: every kLoneWarps-th.
struct LoneItems {
  const LoneBlock& block;
  std::uint64_t* barriers;
  std::byte* ring;
  unsigned warp;
  int first;
  int last;

  __device__ __forceinline__ explicit LoneItems(const LoneBlock& in) : block(in) {
    warp = threadIdx.x / kWarp;
    barriers = block.barriers(warp);
    ring = block.ring(warp);
    const int b = static_cast<int>(blockIdx.x);
    first = b * block.at.per_block + min(b, block.at.longer) + static_cast<int>(warp);
    last = (b + 1) * block.at.per_block + min(b + 1, block.at.longer);
    if (threadIdx.x % kWarp == 0) {
      for (int i = 0; i < kLoneAhead; ++i) barrier_init(barriers + i, 1);
      end_barrier_init();
    }
    __syncwarp();
  }
  // The weights of `count` items from `item` on, kLoneWarps apart, on their way to slots from `slot` on. An item is
  // `columns` columns, a lane's each: `bytes(item)` of one, from `source(item, column)` on.
  template <class Bytes, class Source>
  __device__ __forceinline__ void ask(int item, int slot, int count, int columns, Bytes bytes, Source source) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int i = columns == 1 ? lane : columns == 2 ? lane / 2 : lane / columns;
    const int column = lane - i * columns;
    const int mine = item + i * kLoneWarps;
    const bool has = i < count && mine < last;
    std::uint64_t* const barrier = barriers + slot + i;
    const int size = has ? bytes(mine) : 0;
    if (has && column == 0) expect_bytes(barrier, columns * size);
    __syncwarp();
    if (has) copy_bulk(ring + (slot + i) * block.at.item_bytes + column * size, source(mine, column), size, barrier);
  }
  // Asks for the first items.
  template <class Bytes, class Source>
  __device__ __forceinline__ void begin_copies(int columns, Bytes bytes, Source source) const {
    ask(first, 0, block.at.ahead, columns, bytes, source);
  }
  // Then goes through all of them: `multiply(item, weights, terms)`, and `finish(item, terms, count)` for `count` items at
  // a time, kLoneWarps apart, with `start(item)` before the first of them is multiplied.
  template <class Bytes, class Source, class Start, class Multiply, class Finish>
  __device__ __forceinline__ void run(int columns, Bytes bytes, Source source, Start start, Multiply multiply,
                                      Finish finish) const {
    float2* const terms = block.terms(warp);
    int slot = 0;
    unsigned parity = 0;
    int held = 0;
#pragma unroll 1
    for (int item = first; item < last; item += kLoneWarps) {
      if (held == 0) start(item);
      barrier_wait(barriers + slot, parity);
      multiply(item, ring + slot * block.at.item_bytes, terms + held * block.at.item_units);
      __syncwarp();
      const int next = item + block.at.ahead * kLoneWarps;
      if (next < last) ask(next, slot, 1, columns, bytes, source);
      if (++slot == block.at.ahead) {
        slot = 0;
        parity ^= 1U;
      }
      if (++held < block.at.held && item + kLoneWarps < last) continue;
      finish(item - (held - 1) * kLoneWarps, terms, held);
      __syncwarp();
      held = 0;
    }
  }
};
#endif

}  // namespace conclave::cuda
