// A bank of prefill_rows_plan.h, as kernels write it.
#pragma once

#include <cstdint>

#include "backends/cuda/bf16_pair.cuh"
#include "backends/cuda/prefill_rows_plan.h"
#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

__device__ __forceinline__ std::uint16_t* bank_row(const BankOut& bank, std::int64_t row) {
  return bank.bf16 + row * bank.bf16_stride;
}
// Where element `first` of a row is, which 64 divides. From there on, those up to first + 63 are where bank_place says of
// 0 to 63, and the next 64, if they are of the same superblock, where it says of 64 to 127.
__device__ __forceinline__ int bank_start(int first) {
  return first / kChunk * kChunk + first % kChunk / 64 * bank_place(64);
}

// Elements `first` to first + 3 of a row of the bank; four divides `first`.
__device__ __forceinline__ void put_bank_4(std::uint16_t* row, std::int64_t first, const float (&v)[4]) {
  std::uint16_t* to = row + first / kChunk * kChunk + bank_place(static_cast<int>(first % kChunk));
  *reinterpret_cast<unsigned*>(to) = bf16_pair(v[0], v[2]);
  *reinterpret_cast<unsigned*>(to + 8) = bf16_pair(v[1], v[3]);
}

}  // namespace conclave::cuda
