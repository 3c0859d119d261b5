// A stage of wide_rows in shared memory, and how a superblock gets there.
#pragma once

#include "backends/cuda/unit_output.cuh"
#include "backends/cuda/weight_planes.h"
#include "backends/cuda/wide_tiles.cuh"

namespace conclave::cuda {

// Gate and up alternate every 8 columns: a tile of 16 has 8 of each.
inline constexpr int kWideRun = 8;
using WideColumns = UnitColumns<kWideRun>;

template <DType type, int kRows>
struct WideStage {
  std::byte* at;

  __device__ __forceinline__ std::byte* column(int c) const {
    return at + 2 * wide_half(kRows) + c * wide_column_stride(type);
  }
  __device__ __forceinline__ std::byte* sums(int r) const { return at + wide_sums_at(type, kRows) + sums_place(r); }
  __device__ __forceinline__ std::byte* d(int c) const { return at + wide_sums_at(type, kRows) + c * 4; }
  __device__ __forceinline__ float* scales() const {
    return reinterpret_cast<float*>(at + wide_scales_at(type, kRows));
  }
};

template <DType type, int kRows>
__device__ __forceinline__ WideStage<type, kRows> stage_of(std::byte* stages, int place) {
  return {stages + place * wide_stage_bytes(type, kRows)};
}

// What is made of it is made when it is needed: the compiler would keep it all, and has no registers for that.
template <class T>
__device__ __forceinline__ T* opaque(T* p) {
  asm volatile("" : "+l"(p));
  return p;
}
__device__ __forceinline__ int opaque(int i) {
  asm volatile("" : "+r"(i));
  return i;
}

// What a thread of the copying warpgroup copies of a tile, one superblock after another. Copies go through the unit
// that the loads of those who multiply wait for, and it takes a line of memory at a time: so neighbouring lanes have
// neighbouring 16-byte parts, of as few columns or rows at once as can be.
template <DType type, int kRows>
class WideCopies {
 public:
  __device__ __forceinline__ WideCopies(const UnitArgs& args, const WideTile& tile, const TableSlot* slots, int t)
      : args_(args),
        w_(args.w + tile.expert * args.w_expert),
        up_(args.up == nullptr ? w_ : args.up + tile.expert * args.up_expert),
        count_(tile.count),
        t_(t),
        slots_(slots) {
    const WideColumns at{args, tile.expert, tile.column};
    const auto w_words = static_cast<unsigned>(args.w_column / 16);
    const auto up_words = static_cast<unsigned>(args.up_column / 16);
    // Past the last column it is the last again.
    const auto column_of = [&](int c, int bit) {
      const bool of_up = at.is_up(c);
      of_up_ |= (of_up ? 1U : 0U) << bit;
      const int column = at.column(c) < args.n ? at.column(c) : args.n - 1;
      return static_cast<unsigned>(column) * (of_up ? up_words : w_words);
    };
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int part = t_ + kWideGroup * i;
      part_[i] = column_of(part / kParts, i) + part % kParts;
    }
    if constexpr (!is_affine(type)) column_ = column_of(t_, kParts);
  }

  // The next superblock, c, into a stage that lies at `stage` in shared memory.
  __device__ __forceinline__ void copy(unsigned stage, int c) {
    const unsigned columns = stage + 2 * wide_half(kRows);
    if constexpr (is_affine(type)) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        copy_16_of_many(columns + 16 * (t_ + kWideGroup * i), of_column(i, part_[i] + c * kParts));
      }
    } else {
      copy_planes(columns, stage + wide_sums_at(type, kRows), c);
    }
    // Word p of a row at its place p ^ row % 8, in two halves of k.
    const unsigned row = stage + t_ / 8 * 128 + ((t_ ^ t_ / 8) & 7) * 16;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      if (t_ / 8 + 16 * i < count_) {
        const std::int8_t* from = args_.q + std::uint64_t{chunk_of(t_ / 8 + 16 * i, c)} * kChunk + 16 * (t_ % 8);
        copy_16(row + 16 * 128 * i, from);
        copy_16(row + 16 * 128 * i + wide_half(kRows), from + 128);
      }
    }
    if constexpr (is_affine(type)) {
#pragma unroll
      for (int i = 0; i < kSumRows; ++i) {
        if (t_ / 2 + 64 * i < count_) {
          const unsigned to = stage + wide_sums_at(type, kRows) + sums_place(t_ / 2 + 64 * i) + 128 * (t_ % 2);
          copy_16(to, args_.sums + std::uint64_t{chunk_of(t_ / 2 + 64 * i, c)} * 16 + 8 * (t_ % 2));
        }
      }
    }
    if (t_ < count_) {
      copy_4(stage + wide_scales_at(type, kRows) + 4 * wide_scale_place(t_), args_.scale + chunk_of(t_, c));
    }
  }

 private:
  static constexpr int kParts = is_affine(type) ? block_bytes(type) / 16 : 8;  // of a column's levels; of a thread
  static constexpr int kSumRows = (kRows + 63) / 64;

  // Of the bank: chunk c of row r.
  __device__ __forceinline__ unsigned chunk_of(int r, int c) const {
    const int from = slots_[r].from < 0 ? 0 : slots_[r].from;
    return static_cast<unsigned>(from) * static_cast<unsigned>(args_.chunks) + static_cast<unsigned>(c);
  }
  // A 16-byte word of the matrix that bit i tells.
  __device__ __forceinline__ const std::byte* of_column(int i, unsigned word) const {
    return ((of_up_ >> i & 1U) != 0 ? opaque(up_) : opaque(w_)) + std::uint64_t{word} * 16;
  }
  // q6_k: ql, qh and scales of a column side by side; the words with its d at `d`.
  __device__ __forceinline__ void copy_planes(unsigned columns, unsigned d, int c) {
    const PlanesQ6K planes{args_.chunks};
    const int part = t_ % 8;
    const unsigned to = columns + t_ / 8 * wide_column_stride(type);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      copy_16_of_many(to + 16 * i * wide_column_stride(type) + 16 * part, of_column(i, part_[i] + 8 * c));
    }
    // Half of the lanes have one column's four parts, half the next one's.
    const unsigned on = static_cast<unsigned>(planes.qh(c) / 16) + part % 4 - part;
#pragma unroll
    for (int i = 0; i < kParts; i += 2) {
      const std::byte* from = part < 4 ? of_column(i, part_[i] + on) : of_column(i + 1, part_[i + 1] + on);
      copy_16_of_many(to + 16 * (i + part / 4) * wide_column_stride(type) + 128 + 16 * (part % 4), from);
    }
    const std::byte* column = of_column(kParts, column_);
    copy_16(columns + t_ * wide_column_stride(type) + 192, column + planes.scales(c));
    // The column goes on for whole 16-byte words.
    copy_4(d + 4 * t_, column + planes.d(c & ~1));
  }

  const UnitArgs& args_;
  const std::byte* w_;  // of the expert
  const std::byte* up_;
  int count_;
  int t_;
  const TableSlot* slots_;
  unsigned part_[kParts];  // part t + 128 i of all columns', in 16-byte words from w_ or up_
  unsigned of_up_ = 0;     // bit i: which of the two; kParts: of column_
  unsigned column_ = 0;    // q6_k: column t
};

}  // namespace conclave::cuda
