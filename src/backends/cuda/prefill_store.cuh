// How outputs of prefill_rows get from registers to where they belong.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/prefill_copies.cuh"
#include "backends/cuda/prefill_levels.cuh"

namespace conclave::cuda {

// By a warp, which has 16 columns of weights, `c` and on, and their products with N rows: 16 rows at a time go through
// its own shared memory, `out`. There, four columns of a row are one word, in an order that spreads over the banks.
class PrefillStore {
 public:
  __device__ __forceinline__ PrefillStore(const PrefillArgs& args, const PrefillTile& tile, const TableSlot* slots,
                                          float* out, int c, int lane)
      : at_{args, tile.expert, tile.first}, slots_(slots), out_(out), c_(c), lane_(lane), count_(tile.count) {}

  template <int N>
  __device__ __forceinline__ void store(const float (&y)[N / 2]) const {
    const PrefillArgs& args = at_.args;
    const bool gate_up = args.up != nullptr;
    const bool bank = args.bank_out != nullptr;
    const int columns = columns_of(args.table, args.n);
    const int size = bank || args.out_type != DType::f32 ? 2 : 4;
    // The first of the thread's four outputs of a row.
    const int word = gate_up ? lane_ % 2 : lane_ % 4;
    const int place = at_.place(c_) + 4 * word;
    std::byte* out = bank ? reinterpret_cast<std::byte*>(args.bank_out) : args.out;
    const std::int64_t stride = bank ? 2 * args.bank_out_stride : args.out_stride;
    const auto places = reinterpret_cast<std::uintptr_t>(out) | static_cast<std::uint64_t>(stride);
    const bool whole = (args.bias == nullptr || !bank) && (places & (4U * static_cast<unsigned>(size) - 1)) == 0 &&
                       (bank ? place / kChunk * kChunk + kChunk : place + 4) <= columns;
    out += std::int64_t{place} * size;
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
#pragma unroll 1
      for (int row = gate_up ? lane_ / 2 : lane_ / 4; row < kPrefillOutRows; row += gate_up ? 16 : 8) {
        const TableSlot slot = slots_[first + row];  // none past the last
        if (slot.from < 0) continue;
        if (whole) {
          float four[4];
          load(row, word, four);
          if (gate_up) {
            float up[4];
            load(row, word + 2, up);
            gated_4(args.act, four, up);
          }
          if (args.bias != nullptr) {
#pragma unroll
            for (int i = 0; i < 4; ++i) four[i] += load_float(args.bias_type, args.bias, place + i);
          }
          store_4(bank ? DType::bf16 : args.out_type, out + slot.to * stride, four);
        } else {
          put_each(row, word, place, columns, slot.to);
        }
      }
    }
  }

 private:
  static __device__ __forceinline__ int word_of(int row, int word) {
    return row * 16 + ((word ^ row >> 1) & 3) * 4;
  }
  __device__ __forceinline__ void load(int row, int word, float (&y)[4]) const {
    const auto four = *reinterpret_cast<const float4*>(out_ + word_of(row, word));
    y[0] = four.x * kPrefillLarger;
    y[1] = four.y * kPrefillLarger;
    y[2] = four.z * kPrefillLarger;
    y[3] = four.w * kPrefillLarger;
  }

  // Four outputs of a row, one by one.
  __device__ __forceinline__ void put_each(int row, int word, int place, int columns, std::int64_t to) const {
    const PrefillArgs& args = at_.args;
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
      const int column = at_.column(place + i);
      float y = out_[word_of(row, word) + i] * kPrefillLarger;
      if (args.up != nullptr) y = gated(args.act, y, out_[word_of(row, word + 2) + i] * kPrefillLarger);
      if (args.bias != nullptr && column < columns) y += load_float(args.bias_type, args.bias, column);
      if (args.bank_out != nullptr) {
        // What is past the last column is zero, up to the bank's end.
        if (place + i >= (args.n + kChunk - 1) / kChunk * kChunk) return;
        auto* out = reinterpret_cast<std::byte*>(args.bank_out + to * args.bank_out_stride);
        store_float(DType::bf16, out, place + i, column < columns ? y : 0.0F);
      } else if (column < columns) {
        store_float(args.out_type, args.out + to * args.out_stride, column, y);
      }
    }
  }

  PrefillColumnsOf at_;
  const TableSlot* slots_;
  float* out_;
  int c_;
  int lane_;
  int count_;
};

}  // namespace conclave::cuda
