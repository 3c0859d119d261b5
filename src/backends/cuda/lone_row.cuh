// Pieces of the kernels of lone_row_plan.h. kChunks: superblocks of a column where the compiler knows how many, else 0.
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
  unsigned address;  // of base

  __device__ __forceinline__ LoneBlock(std::byte* memory, const LoneSpace& space)
      : base(memory), at(space), address(kept_address(memory)) {}
  __device__ __forceinline__ uint4* row() const { return reinterpret_cast<uint4*>(base); }
  __device__ __forceinline__ float* scales() const { return reinterpret_cast<float*>(base + at.scales); }
  __device__ __forceinline__ std::int16_t* sums() const { return reinterpret_cast<std::int16_t*>(base + at.sums); }
  __device__ __forceinline__ float* floats() const { return reinterpret_cast<float*>(base + at.floats); }
  // An address.
  __device__ __forceinline__ unsigned terms(unsigned warp) const {
    return address + at.terms + warp * at.held * at.item_units * 8;
  }
};

// Sixteen int8 of a row, piece p of superblock u: where they lie, in pieces. Lanes that read one each at once, of two
// superblocks, find them in different banks, whichever of the two ways to quarter a superblock is theirs.
__device__ __forceinline__ unsigned lone_piece(unsigned u, unsigned p) {
  return (u / 2) * 32 + (p % 4) * 8 + (u % 2) * 4 + (p / 8) * 2 + ((p / 4 ^ p) & 1);
}

// A lane's 64 values of a row, and the sums of its groups: two of 16 bits.
template <DType type>
struct LoneQuarter {
  int word[16];
  int sums;
  float scale;

  __device__ __forceinline__ void load(const LoneBlock& block, unsigned u, unsigned t) {
    // lone_piece() of QuarterUnit::place(), with what lanes have of their own apart from what differs by piece.
    const unsigned from = block.address + ((u / 2) * 32 + (u % 2) * 4 + (t / 2) * 2) * 16;
    const unsigned odd = t % 2;
    const unsigned even = from + (is_affine(type) ? odd : 9 * odd) * 16;
    const unsigned other = from + (is_affine(type) ? 8 + (odd ^ 1) : 8 * odd + (odd ^ 1)) * 16;
    const uint4 x[4] = {load_shared_16(even), load_shared_16(is_affine(type) ? other : even + 256),
                        load_shared_16(is_affine(type) ? even + 256 : other), load_shared_16(other + 256)};
#pragma unroll
    for (int i = 0; i < 16; ++i) word[i] = word_of(x[i / 4], i % 4);
    scale = __uint_as_float(load_shared_4(block.address + block.at.scales + 4 * u));
    if constexpr (is_affine(type)) {
      sums = static_cast<int>(load_shared_4(block.address + block.at.sums + 4 * (4 * u + t)));
    }
  }
};

// Where a lane's scales and minimums of q4_k and q5_k are: those of the first four groups have six bits each in a word
// of their own; of the others four bits are in the last word, and two above those of the first (src/quant/k_scales.h).
struct ScaleBits {
  unsigned shift;
  unsigned own;
  unsigned last_shift;
  unsigned last;

  __device__ __forceinline__ explicit ScaleBits(unsigned t)
      : shift(16 * (t % 2) + (t < 2 ? 0 : 2)),
        own(t < 2 ? 0x3F3FU : 0x3030U),
        last_shift(16 * (t % 2)),
        last(t < 2 ? 0U : 0x0F0FU) {}
  __device__ __forceinline__ unsigned scales(const uint4& head) const {
    return (head.y >> shift & own) | (head.w >> last_shift & last);
  }
  __device__ __forceinline__ unsigned minimums(const uint4& head) const {
    return (head.z >> shift & own) | (head.w >> last_shift >> 4 & last);
  }
};

// Two numbers of 16 bits times the two lower bytes of `bytes`.
__device__ __forceinline__ int dot_of_two(int shorts, unsigned bytes) {
  int y;
  asm("dp2a.lo.s32.u32 %0, %1, %2, 0;" : "=r"(y) : "r"(shorts), "r"(bytes));
  return y;
}

// superblock_product() with fewer instructions.
template <DType type>
__device__ __forceinline__ float lone_product(const QuarterUnit<type>& unit, const LoneQuarter<type>& row, unsigned t,
                                              const ScaleBits& bits) {
  QuarterLevels<type> levels;
  unit.unpack(t, levels);
  if constexpr (is_affine(type)) {
    int dot[2] = {};
#pragma unroll
    for (int i = 0; i < 16; ++i) dot[i / 8] = dot_unsigned(levels.word[i], row.word[i], dot[i / 8]);
    if (type == DType::q4_k) dot[1] >>= 4;  // exact
    const unsigned scales = bits.scales(unit.head);
    const int high = dot[0] * static_cast<int>(scales & 0xFFU) + dot[1] * static_cast<int>(scales >> 8);
    const int low = dot_of_two(row.sums, bits.minimums(unit.head));
    const bool takes_away = t % 2 != 0;
    int total = (takes_away ? low : high) + __shfl_xor_sync(kAllLanes, takes_away ? high : low, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const float by = __half2float(__ushort_as_half(static_cast<std::uint16_t>(unit.head.x >> bits.last_shift)));
    return (row.scale * by) * static_cast<float>(total);
  } else {
    return superblock_product<type>(unit, levels, row, t);
  }
}

// Eight values of each lane, a superblock in all, as int8 into place u. Whether they have no int8 form.
__device__ __forceinline__ bool put_superblock(const LoneBlock& block, unsigned u, const QuantizedLane& q) {
  const unsigned lane = threadIdx.x % kWarp;
  reinterpret_cast<int2*>(block.row() + lone_piece(u, lane / 2))[lane % 2] = make_int2(q.low, q.high);
  int sum = sum_of_two(q);  // of 16
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  if (lane % 4 == 0) block.sums()[8 * u + lane / 4] = static_cast<std::int16_t>(sum);
  if (lane == 0) block.scales()[u] = q.scale;
  return isnan(q.scale);
}

// Eight values of each lane of the warp whose chunk of the row they are; elsewhere nothing.
template <int kChunks>
struct LoneRun {
  Run v;
  Run weight;
  unsigned i;  // the lane's first
  bool has;

  __device__ static int chunks_of(const LoneRow& row) { return kChunks > 0 ? kChunks : row.k / kChunk; }

  // What can be asked for before the row is there.
  __device__ __forceinline__ explicit LoneRun(const LoneRow& row) {
    i = kRunLength * threadIdx.x;
    has = static_cast<int>(threadIdx.x) / kWarp < chunks_of(row);
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
    const int chunks = chunks_of(row);
    const NormScale scale = norm_scale(chunks * kChunk, row.eps, [&](float factor) {
      float sum = 0;
      add_squares(v, factor, sum);
      sum = fold_warp(sum, [](float a, float b) { return a + b; });
      if (factor != 1) __syncthreads();  // the sums before these have been read
      if (lane == 0) of_warp[warp] = sum;
      __syncthreads();
      float all = of_warp[0];
#pragma unroll
      for (int w = 1; w < chunks; ++w) all += of_warp[w];
      return all;
    });
    if (!has) return;
    norm_run(v, weight, scale, v);
    store_run<true>(DType::f32, reinterpret_cast<std::byte*>(keep), i, 0, v);
    if (blockIdx.x == 0 && live) [[unlikely]] {
      store_run<true>(DType::f32, reinterpret_cast<std::byte*>(row.normed), i, 0, v);
    }
  }
};

// A column's superblocks by a warp, eight at a time, four lanes each: what each adds to the output goes to its terms.
// Where there are eight the row stays in registers.
template <DType type, int kChunks>
struct LonePass {
  static constexpr bool kKeepsRow = kChunks == kPassUnits;
  const LoneBlock& block;
  unsigned lane;
  unsigned t;
  ScaleBits bits;
  LoneQuarter<type> kept_row;

  __device__ __forceinline__ explicit LonePass(const LoneBlock& in)
      : block(in), lane(kept(threadIdx.x % kWarp)), t(lane % 4), bits(t) {
    if constexpr (kKeepsRow) kept_row.load(block, lane / 4, t);
  }
  __device__ __forceinline__ int chunks() const { return kChunks > 0 ? kChunks : block.at.chunks; }
  // Superblock u of the row, c of the column: what it adds, and where it goes, if the lane `has` one.
  __device__ __forceinline__ void multiply(unsigned column, int chunks, unsigned u, unsigned c, bool has,
                                           unsigned terms) const {
    LoneQuarter<type> row;
    if constexpr (kKeepsRow) {
      row = kept_row;
    } else {
      row.load(block, u, t);
    }
    QuarterUnit<type> unit;
    unit.load(column, typename QuarterUnit<type>::Place(c, t, chunks));
    const float y = lone_product<type>(unit, row, t, bits);
    if (has && t < (is_affine(type) ? 2 : 1)) store_shared(terms + 8 * u + 4 * t, y);
  }
  __device__ __forceinline__ void multiply_column(unsigned column, unsigned terms) const {
    const unsigned mine = lane / 4;
    if constexpr (kChunks > 0) {
#pragma unroll
      for (unsigned first = 0; first < kChunks; first += kPassUnits) {
        multiply(column, kChunks, first + mine, first + mine, true, terms);
      }
    } else {
#pragma unroll 1
      for (int first = 0; first < block.at.chunks; first += kPassUnits) {
        const unsigned c = min(first + mine, block.at.chunks - 1U);
        multiply(column, block.at.chunks, c, c, c == first + mine, terms);
      }
    }
  }
};

// What the superblocks of a column come to, in their order, from terms at an address on.
template <DType type, int kChunks>
__device__ __forceinline__ float column_total(unsigned terms, int chunks) {
  float y = 0.0F;
  const auto add = [&](float plus, float minus) {
    const float sum = y + plus;
    y = is_affine(type) ? sum - minus : sum;
  };
  if constexpr (kChunks > 0 && kChunks % 2 == 0) {
#pragma unroll
    for (int c = 0; c < kChunks; c += 2) {
      const uint4 two = load_shared_16(terms + 8 * c);
      add(__uint_as_float(two.x), __uint_as_float(two.y));
      add(__uint_as_float(two.z), __uint_as_float(two.w));
    }
  } else {
    const int n = kChunks > 0 ? kChunks : chunks;
#pragma unroll 4
    for (int c = 0; c < n; ++c) {
      const float2 term = load_shared_8(terms + 8 * c);
      add(term.x, term.y);
    }
  }
  return y;
}

// plain_dot() of a column: rare, so that its code is elsewhere.
static __device__ __noinline__ float plain_column(const float* row, const std::byte* column, DType type, int k) {
  return plain_dot({reinterpret_cast<const std::byte*>(row), DType::f32, column, type, !is_affine(type), k});
}

}  // namespace conclave::cuda
