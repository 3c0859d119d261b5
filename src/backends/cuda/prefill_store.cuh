// How outputs of prefill_rows get from registers to where they belong.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/bf16_pair.cuh"
#include "backends/cuda/prefill_copies.cuh"
#include "backends/cuda/prefill_levels.cuh"

namespace conclave::cuda {

// By a warp, which has 16 columns of weights, `c` and on, and their products with N rows: 16 rows at a time go through
// its own shared memory, `out`. There, four columns of a row are one word, in an order that spreads over the banks.
class PrefillStore {
 public:
  __device__ __forceinline__ PrefillStore(const PrefillArgs& args, const PrefillTile& tile, const TableSlot* slots,
                                          float* out, int c, int lane)
      : at_{args, tile.expert, tile.first},
        slots_(slots),
        out_(out),
        c_(c),
        lane_(lane),
        count_(tile.count),
        columns_(columns_of(args.table, args.n)) {
    const int size = args.out_type == DType::f32 ? 4 : 2;
    const auto places = reinterpret_cast<std::uintptr_t>(args.out) | static_cast<std::uint64_t>(args.out_stride);
    aligned_ = (places & (4U * static_cast<unsigned>(size) - 1)) == 0;
  }

  template <int N>
  __device__ __forceinline__ void store(const float (&y)[N / 2]) const {
#pragma unroll 1
    for (int first = 0; first < count_; first += kPrefillOutRows) {
      __syncwarp();
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        if (n / 2 * kPrefillOutRows != first) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = 8 * (n % 2) + 2 * (lane_ % 4) + i % 2;
          const int column = lane_ / 4 + 8 * (i / 2);
          out_[word_of(row, column / 4) + column % 4] = y[4 * n + i];
        }
      }
      __syncwarp();
      if (at_.args.up != nullptr) {
        store_gated(first);
      } else {
        store_plain(first, lane_ / 4);
        store_plain(first, lane_ / 4 + 8);
      }
    }
  }

 private:
  static __device__ __forceinline__ int word_of(int row, int word) {
    return row * 16 + (word ^ row / 2 % 4) * 4;
  }
  __device__ __forceinline__ void load(int row, int word, float (&y)[4]) const {
    const auto four = *reinterpret_cast<const float4*>(out_ + word_of(row, word));
    y[0] = four.x * kPrefillLarger;
    y[1] = four.y * kPrefillLarger;
    y[2] = four.z * kPrefillLarger;
    y[3] = four.w * kPrefillLarger;
  }

  __device__ __forceinline__ void store_gated(int first) const {
    const int row = lane_ / 2;
    const TableSlot slot = slots_[first + row];  // none past the last
    if (slot.from < 0) return;
    float y[4];
    float up[4];
    load(row, lane_ % 2, y);
    load(row, lane_ % 2 + 2, up);
    gated_4(at_.args.act, y, up);
    put(at_.place(c_) + 4 * (lane_ % 2), slot.to, y);
  }
  __device__ __forceinline__ void store_plain(int first, int row) const {
    const TableSlot slot = slots_[first + row];
    if (slot.from < 0) return;
    float y[4];
    load(row, lane_ % 4, y);
    put(at_.place(c_) + 4 * (lane_ % 4), slot.to, y);
  }

  // Outputs of four places from one on, of an output row.
  __device__ __forceinline__ void put(int place, std::int64_t row, float (&y)[4]) const {
    const PrefillArgs& args = at_.args;
    int column[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      column[i] = at_.column(place + i);
      if (args.bias != nullptr && column[i] < columns_) y[i] += load_float(args.bias_type, args.bias, column[i]);
    }
    if (args.bank_out != nullptr) {
      if (place >= (args.n + kChunk - 1) / kChunk * kChunk) return;
#pragma unroll
      for (int i = 0; i < 4; ++i) y[i] = column[i] < columns_ ? y[i] : 0.0F;
      auto* to = reinterpret_cast<uint2*>(args.bank_out + row * args.bank_out_stride + place);
      *to = {bf16_pair(y[0], y[1]), bf16_pair(y[2], y[3])};
      return;
    }
    std::byte* out = args.out + row * args.out_stride;
    if (aligned_ && column[3] < columns_) {
      store_4(args.out_type, out + std::int64_t{place} * (args.out_type == DType::f32 ? 4 : 2), y);
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column[i] < columns_) store_float(args.out_type, out, column[i], y[i]);
    }
  }

  PrefillColumnsOf at_;
  const TableSlot* slots_;
  float* out_;
  int c_;
  int lane_;
  int count_;
  int columns_;
  bool aligned_;
};

}  // namespace conclave::cuda
