// What the ops that work row by row share: how rows are dealt out to the team, and how a row is read and written as
// f32.
#pragma once

#include <algorithm>

#include "backends/cpu/cpu_op.h"
#include "ops/host_access.h"
#include "ops/scratch.h"

namespace conclave {

// Below this many elements a barrier with work on its far side costs more than it saves: rank 0 does all.
inline constexpr std::int64_t kAlone = 4096;
inline constexpr std::int64_t kGrain = 2048;  // elements that are dealt out at once, at least

constexpr bool rows_alone(std::int64_t n, std::int64_t width) {
  return n <= 1 || n * width <= kAlone;
}

// row(r) for 0 .. n-1, each of about `width` elements of work. Ends with a barrier whatever the sizes: they may have
// been read from a tensor that the next op writes.
template <class Row>
void for_rows(const Region& region, std::int64_t n, std::int64_t width, Row&& row) {
  if (width <= 0) n = 0;
  if (rows_alone(n, width)) {
    for (std::int64_t r = 0; region.rank() == 0 && r < n; ++r) row(r);
    region.barrier();
    return;
  }
  region.for_each_chunked(n, kGrain / width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(r);
  });
}

// The length of a tensor's rows; 0 where it has no element: an empty tensor's other dimensions may be anything.
inline std::int64_t row_width(const Tensor& t) {
  for (const std::int64_t d : t.shape()) {
    if (d == 0) return 0;
  }
  return t.inner();
}

// A row as f32: where it lies, if it is f32; else loaded into `scratch`.
inline const float* read_row(const RowKernels& kernels, const Tensor& t, Index leading, float* scratch) {
  const std::byte* at = row_address(t, leading);
  if (t.dtype == DType::f32) return reinterpret_cast<const float*>(at);
  kernels.load(t.dtype, at, scratch, t.inner());
  return scratch;
}

// Where the f32 results of a row go: the row itself, if it is f32; else `scratch`, until write_row().
inline float* row_target(const Tensor& t, Index leading, float* scratch) {
  return t.dtype == DType::f32 ? reinterpret_cast<float*>(row_address(t, leading)) : scratch;
}
inline void write_row(const RowKernels& kernels, const Tensor& t, Index leading, const float* target) {
  if (t.dtype != DType::f32) kernels.store(t.dtype, target, row_address(t, leading), t.inner());
}

inline std::int32_t* i32_row(const Tensor& t, Index leading) {
  return reinterpret_cast<std::int32_t*>(row_address(t, leading));
}

}  // namespace conclave
