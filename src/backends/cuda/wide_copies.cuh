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

// What a thread of the copying warpgroup copies of a tile, one superblock after another. Copies go through the unit
// that the loads of those who multiply wait for, and it takes a line of memory at a time: so neighbouring lanes have
// neighbouring 16-byte parts, of as few columns or rows at once as can be.
template <DType type, int kRows>
class WideCopies {
 public:
  __device__ __forceinline__ WideCopies(const UnitArgs& args, const WideTile& tile, const TableSlot* slots, int t)
      : args_(args), count_(tile.count), t_(t) {
    const WideColumns at{args, tile.expert, tile.column};
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int part = t + kWideGroup * i;
      column_[i] = at.address(part / kParts) + 16 * (part % kParts);
    }
    if constexpr (!is_affine(type)) other_ = at.address(t) + PlanesQ6K{args.chunks}.scales(0);
    const auto chunk_of = [&](int r) {
      const int from = r < kRows && slots[r].from >= 0 ? slots[r].from : 0;
      return static_cast<unsigned>(from) * static_cast<unsigned>(args.chunks);
    };
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) row_[i] = chunk_of(t / 8 + 16 * i);
#pragma unroll
    for (int i = 0; i < kSumRows; ++i) sums_[i] = chunk_of(t / 2 + 64 * i);
    scale_ = chunk_of(t);
  }

  // The next superblock, c, into a stage that lies at `stage` in shared memory.
  __device__ __forceinline__ void copy(unsigned stage, unsigned c) {
    const unsigned columns = stage + 2 * wide_half(kRows);
    if constexpr (is_affine(type)) {
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        copy_16_of_many(columns + 16 * (t_ + kWideGroup * i), column_[i]);
        column_[i] += block_bytes(type);
      }
    } else {
      copy_planes(columns, stage + wide_sums_at(type, kRows), c);
    }
    // Word p of a row at its place p ^ row % 8, in two halves of k.
    const std::int8_t* q = args_.q + 16 * (t_ % 8);
    const unsigned row = stage + t_ / 8 * 128 + ((t_ ^ t_ / 8) & 7) * 16;
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) {
      if (t_ / 8 + 16 * i < count_) {
        const std::int8_t* from = q + std::uint64_t{row_[i] + c} * kChunk;
        copy_16(row + 16 * 128 * i, from);
        copy_16(row + 16 * 128 * i + wide_half(kRows), from + 128);
      }
    }
    if constexpr (is_affine(type)) {
#pragma unroll
      for (int i = 0; i < kSumRows; ++i) {
        if (t_ / 2 + 64 * i < count_) {
          const unsigned to = stage + wide_sums_at(type, kRows) + sums_place(t_ / 2 + 64 * i) + 128 * (t_ % 2);
          copy_16(to, args_.sums + std::uint64_t{sums_[i] + c} * 16 + 8 * (t_ % 2));
        }
      }
    }
    if (t_ < count_) {
      copy_4(stage + wide_scales_at(type, kRows) + 4 * wide_scale_place(t_), args_.scale + (scale_ + c));
    }
  }

 private:
  static constexpr int kParts = is_affine(type) ? block_bytes(type) / 16 : 8;  // of a column's levels; of a thread
  static constexpr int kSumRows = (kRows + 63) / 64;

  // q6_k: ql, qh and scales of a column side by side; the words with its d at `d`.
  __device__ __forceinline__ void copy_planes(unsigned columns, unsigned d, unsigned c) {
    const PlanesQ6K planes{args_.chunks};
    const int part = t_ % 8;
    const unsigned to = columns + t_ / 8 * wide_column_stride(type);
#pragma unroll
    for (int i = 0; i < kParts; ++i) copy_16_of_many(to + 16 * i * wide_column_stride(type) + 16 * part, column_[i]);
    // Half of the lanes have one column's four parts, half the next one's.
    const std::int64_t on = planes.qh(c) - planes.ql(c) + 16 * (part % 4) - 16 * part;
#pragma unroll
    for (int i = 0; i < kParts; i += 2) {
      const std::byte* from = part < 4 ? column_[i] : column_[i + 1];
      copy_16_of_many(to + 16 * (i + part / 4) * wide_column_stride(type) + 128 + 16 * (part % 4), from + on);
    }
#pragma unroll
    for (int i = 0; i < kParts; ++i) column_[i] += 128;
    copy_16(columns + t_ * wide_column_stride(type) + 192, other_);
    // The column goes on for whole 16-byte words.
    copy_4(d + 4 * t_, other_ + (planes.d(c & ~1U) - planes.scales(c)));
    other_ += 16;
  }

  const UnitArgs& args_;
  int count_;
  int t_;
  const std::byte* column_[kParts];  // part t + 128 i of all columns'
  const std::byte* other_;           // q6_k: scales of column t
  unsigned row_[kRows / 16];         // as chunks of the bank: row t / 8 + 16 i
  unsigned sums_[kSumRows];          // row t / 2 + 64 i
  unsigned scale_;                   // row t
};

}  // namespace conclave::cuda
