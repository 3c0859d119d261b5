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
      : at_{args, tile.expert, tile.first}, slots_(slots), out_(out), c_(c), lane_(lane), count_(tile.count) {}

  template <int N>
  __device__ __forceinline__ void store(const float (&y)[N / 2]) const {
    const bool gate_up = at_.args.up != nullptr;
#pragma unroll 1
    for (int first = 0; first < count_; first += kPrefillOutRows) {
      int lane = lane_;
      asm volatile("" : "+r"(lane));  // nothing that is made of it is kept: there are no registers for that
      __syncwarp();
#pragma unroll
      for (int n = 0; n < N / 8; ++n) {
        if (n / 2 * kPrefillOutRows != first) continue;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = 8 * (n % 2) + 2 * (lane % 4) + i % 2;
          const int column = lane / 4 + 8 * (i / 2);
          out_[word_of(row, column / 4) + column % 4] = y[4 * n + i];
        }
      }
      __syncwarp();
      // Of gate_up, two words of a row are outputs, else four.
#pragma unroll 1
      for (int i = lane; i < kPrefillOutRows * (gate_up ? 2 : 4); i += kWarp) {
        const int row = gate_up ? i / 2 : i / 4;
        const TableSlot slot = slots_[first + row];  // none past the last
        if (slot.from >= 0) put(row, gate_up ? i % 2 : i % 4, slot.to);
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

  // Four outputs of a row.
  __device__ __forceinline__ void put(int row, int word, std::int64_t to) const {
    const PrefillArgs& args = at_.args;
    const int place = at_.place(c_) + 4 * word;
    const int columns = columns_of(args.table, args.n);
    const int size = args.out_type == DType::f32 ? 4 : 2;
    const auto places = reinterpret_cast<std::uintptr_t>(args.out) | static_cast<std::uint64_t>(args.out_stride);
    const bool bank = args.bank_out != nullptr;
    if (bank ? args.bias != nullptr || place / kChunk * kChunk + kChunk > columns
             : place + 4 > columns || (places & (4U * static_cast<unsigned>(size) - 1)) != 0) {
      put_each(row, word, place, columns, to);
      return;
    }
    float y[4];
    load(row, word, y);
    if (args.up != nullptr) {
      float up[4];
      load(row, word + 2, up);
      gated_4(args.act, y, up);
    }
    if (bank) {
      *reinterpret_cast<uint2*>(args.bank_out + to * args.bank_out_stride + place) = {bf16_pair(y[0], y[1]),
                                                                                      bf16_pair(y[2], y[3])};
      return;
    }
    if (args.bias != nullptr) {
#pragma unroll
      for (int i = 0; i < 4; ++i) y[i] += load_float(args.bias_type, args.bias, place + i);
    }
    store_4(args.out_type, args.out + to * args.out_stride + std::int64_t{place} * size, y);
  }
  // The same, one by one.
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
