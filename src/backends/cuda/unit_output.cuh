// The columns that a block of a unit product has, and where their results go.
#pragma once

#include "backends/cuda/activation.cuh"
#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/plain_dot.cuh"
#include "backends/cuda/row_table.cuh"

namespace conclave::cuda {

// Columns of weights c = 0, 1, ... of a block that starts at column `first` of the output. With gate and up, runs of kRun
// columns of gate and the same of up alternate.
template <int kRun, bool in_blocks_of_32 = false>
struct UnitColumns {
  const UnitArgs& args;
  int expert;
  int first;

  __device__ __forceinline__ bool is_up(int c) const { return args.up != nullptr && (c & kRun) != 0; }
  // Of the output.
  __device__ __forceinline__ int column(int c) const {
    return first + (args.up != nullptr ? c / (2 * kRun) * kRun + c % kRun : c);
  }
  // Past the last column it is the last again: computed and not used.
  __device__ __forceinline__ const std::byte* address(int c) const {
    const std::int64_t at = column(c) < args.n ? column(c) : args.n - 1;
    return is_up(c) ? args.up + expert * args.up_expert + at * args.up_column
                    : args.w + expert * args.w_expert + at * args.w_column;
  }
  // The product in floating point, for a row that has no int8 form.
  __device__ __forceinline__ float plain(int c, std::int64_t from) const {
    return plain_dot<in_blocks_of_32>(
        {args.x + from * args.x_stride, args.x_type, address(c), args.type, !is_affine(args.type), args.k});
  }
  __device__ __forceinline__ void store(int c, std::int64_t row, float y) const {
    const int n = column(c);
    if (n >= columns_of(args.table, args.n)) return;
    if (args.bias != nullptr) y += load_float(args.bias_type, args.bias, n);
    store_float(args.out_type, args.out + row * args.out_stride, n, y);
  }
};

// A tile's products, [row][column] in shared memory, to the outputs of its slots: `plain` rows are made anew. By a block of
// kThreads with kColumns columns of weights, of gate and up in runs of 16.
template <int kThreads, int kColumns, class Columns>
__device__ __forceinline__ void store_tile(const Columns& at, const TableSlot* slots, const int* plain, int count,
                                           const float* products, int stride) {
  const bool gate_up = at.args.up != nullptr;
  const int columns = gate_up ? kColumns / 2 : kColumns;  // of the output
#pragma unroll 1
  for (int i = threadIdx.x; i < count * columns; i += kThreads) {
    const int r = gate_up ? i / (kColumns / 2) : i / kColumns;
    const int c = gate_up ? i % (kColumns / 2) / 16 * 32 + i % 16 : i % kColumns;
    const TableSlot slot = slots[r];
    if (slot.from < 0) continue;
    float out = plain[r] != 0 ? at.plain(c, slot.from) : products[r * stride + c];
    if (gate_up) {
      out = gated(at.args.act, out, plain[r] != 0 ? at.plain(c + 16, slot.from) : products[r * stride + c + 16]);
    }
    at.store(c, slot.to, out);
  }
}

}  // namespace conclave::cuda
