// How the threads of a block share a row of activations: each takes kRunLength neighbouring elements, then the next
// such run one block's width on. The cut follows from the row's length alone, so that a row's sums are the same in any
// batch, in the op that norms it and in the one that also makes it.
#pragma once

#include <algorithm>

#include "backends/cuda/view.h"

namespace conclave::cuda {

inline constexpr int kRunLength = 8;  // 16 bytes of f16
inline constexpr int kMaxRowThreads = 512;
inline constexpr int kKeptPasses = 2;                 // rows of up to 8192 elements stay in registers
inline constexpr std::int64_t kManyBlocks = 1 << 20;  // beyond it blocks take another turn
inline constexpr std::int64_t kVectorBytes = 16;

// Runs that each thread has of a row of d elements.
constexpr std::int64_t row_passes(std::int64_t d) {
  return std::max<std::int64_t>(1, ceil_div(d, std::int64_t{kRunLength} * kMaxRowThreads));
}
constexpr int row_threads(std::int64_t d) {
  const std::int64_t runs = std::max<std::int64_t>(1, ceil_div(d, kRunLength));
  return static_cast<int>(ceil_div(ceil_div(runs, row_passes(d)), kWarp) * kWarp);
}
static_assert(row_threads(1) == 32 && row_threads(256) == 32 && row_threads(257) == 64);
static_assert(row_threads(2048) == 256 && row_passes(2048) == 1);
static_assert(row_threads(7168) == 448 && row_passes(7168) == 2);
static_assert(row_threads(8192) == 512 && row_passes(8192) == kKeptPasses && row_passes(8193) == 3);

// Where a norm also leaves its rows as RowBank has them, as int8 or as bf16: whole chunks of 256, f32, read as vectors.
struct BankOut {
  std::int8_t* q = nullptr;
  float* scale = nullptr;
  std::uint16_t* sums = nullptr;
  std::uint16_t* bf16 = nullptr;
  std::int64_t bf16_stride = 0;

  constexpr bool given() const { return q != nullptr || bf16 != nullptr; }
};

// Where every run is for itself: a thread each, counted over all rows.
inline constexpr int kRunThreads = 128;
constexpr LaunchPlan run_plan(std::int64_t n_rows, std::int64_t d) {
  if (n_rows == 0 || d == 0) return {};
  const std::int64_t runs = n_rows * ceil_div(d, kRunLength);
  return {.blocks = std::min(ceil_div(runs, kRunThreads), kManyBlocks), .threads = kRunThreads};
}
static_assert(run_plan(0, 8).blocks == 0 && run_plan(3, 2048).blocks == 6 && run_plan(3, 1).blocks == 1);

// Whether every run of the view starts at a multiple of 16 bytes and is whole. A view that was not given does not
// object.
inline bool takes_vectors(const View& v) {
  if (v.data == nullptr) return true;
  if (reinterpret_cast<std::uintptr_t>(v.data) % kVectorBytes != 0 || v.dims[v.rank - 1] % kRunLength != 0)
    return false;
  for (int i = 0; i + 1 < v.rank; ++i) {
    if (v.dims[i] > 1 && v.strides[i] % kVectorBytes != 0) return false;
  }
  return true;
}

}  // namespace conclave::cuda
