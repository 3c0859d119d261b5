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
  __device__ __forceinline__ std::byte* sums(int r) const {
    return at + wide_sums_at(type, kRows) + r * kWideSumStride;
  }
  __device__ __forceinline__ std::byte* d(int c) const { return at + wide_sums_at(type, kRows) + c * 4; }
  __device__ __forceinline__ float* scales() const {
    return reinterpret_cast<float*>(at + wide_scales_at(type, kRows));
  }
};

template <DType type, int kRows>
__device__ __forceinline__ WideStage<type, kRows> stage_of(std::byte* stages, int place) {
  return {stages + place * wide_stage_bytes(type, kRows)};
}

// What a thread of the copying warpgroup copies of a tile, one superblock after another: a quarter of four columns and
// of four rows, 32 apart, and what there is one of for each column or row.
template <DType type, int kRows>
class WideCopies {
 public:
  __device__ __forceinline__ WideCopies(const UnitArgs& args, const WideTile& tile, const TableSlot* slots, int t)
      : chunks_(args.chunks), count_(tile.count), t_(t) {
    const WideColumns at{args, tile.expert, tile.column};
    const auto row_of = [&](int r) { return slots[r].from < 0 ? 0 : std::int64_t{slots[r].from} * args.chunks; };
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      column_[i] = at.address(t / 4 + 32 * i) + 16 * (t % 4);
    }
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) q_[i] = args.q + row_of(t / 4 + 32 * i) * kChunk + 16 * (t % 4);
    scale_ = args.scale + row_of(t % kRows);
    if constexpr (is_affine(type)) {
      other_ = reinterpret_cast<const std::byte*>(args.sums + row_of(t % kRows) * 16);
    } else {
      other_ = at.address(t) + PlanesQ6K{args.chunks}.scales(0);
    }
  }

  // The next superblock, c, into a stage that lies at `stage` in shared memory.
  __device__ __forceinline__ void copy(unsigned stage, int c) {
    const int quarter = t_ % 4;
    const unsigned columns = stage + 2 * wide_half(kRows) + t_ / 4 * wide_column_stride(type) + 16 * quarter;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned to = columns + 32 * i * wide_column_stride(type);
      copy_16_of_many(to, column_[i]);
      copy_16_of_many(to + 64, column_[i] + 64);
      if constexpr (is_affine(type)) {
        if (8 + quarter < block_bytes(type) / 16) copy_16_of_many(to + 128, column_[i] + 128);
        column_[i] += block_bytes(type);
      } else {
        const PlanesQ6K planes{chunks_};
        copy_16_of_many(to + 128, column_[i] + (planes.qh(c) - planes.ql(c)));
        column_[i] += 128;
      }
    }
    // Words 4 p + t % 4 of a row, as wgmma.cuh wants them: rows 32 apart have theirs in the same order.
    const unsigned row = stage + t_ / 4 * 128;
    const unsigned even = row + ((quarter ^ t_ / 4) & 7) * 16;
    const unsigned odd = row + (((4 + quarter) ^ t_ / 4) & 7) * 16;
#pragma unroll
    for (int i = 0; i < kRows / 32; ++i) {
      if (t_ / 4 + 32 * i < count_) {
        copy_16(even + 32 * 128 * i, q_[i]);
        copy_16(odd + 32 * 128 * i, q_[i] + 64);
        copy_16(even + 32 * 128 * i + wide_half(kRows), q_[i] + 128);
        copy_16(odd + 32 * 128 * i + wide_half(kRows), q_[i] + 192);
      }
      q_[i] += kChunk;
    }
    if constexpr (is_affine(type)) {
      if (t_ < count_) {
        const unsigned to = stage + wide_sums_at(type, kRows) + t_ * kWideSumStride;
        copy_16(to, other_);
        copy_16(to + 16, other_ + 16);
      }
      other_ += 32;
    } else {
      const PlanesQ6K planes{chunks_};
      copy_16(stage + 2 * wide_half(kRows) + t_ * wide_column_stride(type) + 192, other_);
      // The word that d is in: the column goes on for whole 16-byte words.
      copy_4(stage + wide_sums_at(type, kRows) + 4 * t_, other_ + (planes.d(c & ~1) - planes.scales(c)));
      other_ += 16;
    }
    if (t_ < count_) copy_4(stage + wide_scales_at(type, kRows) + 4 * t_, scale_);
    ++scale_;
  }

 private:
  int chunks_;
  int count_;
  int t_;
  const std::byte* column_[4];
  const std::int8_t* q_[kRows / 32];
  const std::byte* other_;  // sums of row t, or scales of column t
  const float* scale_;
};

}  // namespace conclave::cuda
