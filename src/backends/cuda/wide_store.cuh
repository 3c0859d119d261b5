// How outputs of wide_rows get from shared memory to where they belong.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/wide_copies.cuh"

namespace conclave::cuda {

// Rows `first` to first + 31 of a tile, whose products lie in shared memory: four columns a thread.
class WideStore {
 public:
  __device__ __forceinline__ WideStore(const UnitArgs& args, const WideTile& tile, const WideShared& shared,
                                       const TableSlot* slots, int group, int t, int first)
      : shared_(shared),
        slots_(slots),
        at_{args, tile.expert, tile.column},
        group_(group),
        t_(t),
        first_(first),
        rows_(tile.count - first < kWideOutRows ? tile.count - first : kWideOutRows) {}

  __device__ __forceinline__ void store() const {
    const UnitArgs& args = at_.args;
    const int size = args.out_type == DType::f32 ? 4 : 2;
    const auto aligned = [&](std::uint64_t bytes) { return (bytes & (4U * static_cast<unsigned>(size) - 1)) == 0; };
    const bool gate_up = args.up != nullptr;
    // Of the 64 columns of weights, the first of four that the thread has.
    const int c = gate_up ? t_ % 8 / 2 * (2 * kWideRun) + t_ % 2 * 4 : t_ % 16 * 4;
    const int column = at_.column(weights(c));
    const bool whole = args.bias == nullptr && column + 4 <= columns_of(args.table, args.n) &&
                       aligned(reinterpret_cast<std::uintptr_t>(args.out)) &&
                       aligned(static_cast<std::uint64_t>(args.out_stride));
    bool left = !whole;
    if (whole) {
      std::byte* out = args.out + std::int64_t{column} * size;
      left = gate_up ? store_whole<true>(out, c) : store_whole<false>(out, c);
    }
    if (left) store_others(c, whole);
  }

 private:
  __device__ __forceinline__ int weights(int c) const { return group_ * (kWideColumns / kWideMultiplying) + c; }
  __device__ __forceinline__ bool plain(int r) const { return shared_.plain[group_][first_ + r] != 0; }

  // Four columns at once, in rows that have an int8 form. Whether there are others.
  template <bool gate_up>
  __device__ __forceinline__ bool store_whole(std::byte* out, int c) const {
    constexpr int kThreads = gate_up ? 8 : 16;                                 // of a row
    constexpr int kRows = gate_up ? 1 : kWideOutRows * kThreads / kWideGroup;  // whose loads are waited for together
    bool others = false;
#pragma unroll 1
    for (int r = t_ / kThreads; r < rows_; r += kRows * (kWideGroup / kThreads)) {
      TableSlot slot[kRows];
      float4 y[kRows];
      bool int8[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int row = r + i * (kWideGroup / kThreads);  // those past the last have no slot
        slot[i] = slots_[first_ + row];
        y[i] = *reinterpret_cast<const float4*>(&shared_.out[group_][row][c]);
        int8[i] = !plain(row);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (slot[i].from < 0) continue;
        float result[4] = {y[i].x, y[i].y, y[i].z, y[i].w};
        if constexpr (gate_up) {
          const auto up = *reinterpret_cast<const float4*>(&shared_.out[group_][r][c + kWideRun]);
          gated_4(at_.args.act, result, {up.x, up.y, up.z, up.w});
        }
        if (int8[i]) store_4(at_.args.out_type, out + slot[i].to * at_.args.out_stride, result);
        others = others || !int8[i];
      }
    }
    return others;
  }

  // One by one: rows that have no int8 form, or all.
  __device__ __forceinline__ void store_others(int c, bool stored) const {
    const bool gate_up = at_.args.up != nullptr;
    const int per_row = gate_up ? 8 : 16;  // threads
#pragma unroll 1
    for (int r = t_ / per_row; r < rows_; r += kWideGroup / per_row) {
      const TableSlot slot = slots_[first_ + r];
      if (slot.from < 0 || (stored && !plain(r))) continue;
#pragma unroll 1
      for (int e = 0; e < 4; ++e) {
        const float y = product(r, c + e, slot.from);
        at_.store(weights(c + e), slot.to,
                  gate_up ? gated(at_.args.act, y, product(r, c + e + kWideRun, slot.from)) : y);
      }
    }
  }
  __device__ __forceinline__ float product(int r, int c, int from) const {
    return plain(r) ? at_.plain(weights(c), from) : shared_.out[group_][r][c];
  }

  const WideShared& shared_;
  const TableSlot* slots_;
  WideColumns at_;
  int group_;
  int t_;
  int first_;
  int rows_;
};

}  // namespace conclave::cuda
