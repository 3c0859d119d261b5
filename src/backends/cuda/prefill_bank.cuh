// A bank of prefill_rows_plan.h, as kernels write it.
#pragma once

#include <cstdint>

#include "backends/cuda/bf16_pair.cuh"
#include "backends/cuda/prefill_rows_plan.h"

namespace conclave::cuda {

// Elements `first` to first + 3 of a row of the bank; four divides `first`.
__device__ __forceinline__ void put_bank_4(std::uint16_t* row, std::int64_t first, const float (&v)[4]) {
  std::uint16_t* to = row + first / kChunk * kChunk + bank_place(static_cast<int>(first % kChunk));
  *reinterpret_cast<unsigned*>(to) = bf16_pair(v[0], v[2]);
  *reinterpret_cast<unsigned*>(to + 8) = bf16_pair(v[1], v[3]);
}

}  // namespace conclave::cuda
