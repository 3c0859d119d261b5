// Rows between host memory and the GPU, on a stream, whatever their strides. Host code alone.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "backends/cuda/cuda_check.h"
#include "backends/cuda/view.h"

namespace conclave::cuda {

inline constexpr std::int64_t kMaxPitch = (std::int64_t{1} << 31) - 1;

struct CopiedRows {
  std::byte* to = nullptr;
  std::int64_t to_stride = 0;
  const std::byte* from = nullptr;
  std::int64_t from_stride = 0;
  std::int64_t row_bytes = 0;
  std::int64_t rows = 0;
};

// One copy for all rows where CUDA's pitch can say how they lie; else one each. A single row's stride may be anything.
inline void copy_rows(const CopiedRows& c, cudaMemcpyKind kind, const Stream& stream, std::string_view doing) {
  if (c.row_bytes == 0 || c.rows == 0) return;
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const auto pitched = [&](std::int64_t stride) { return stride >= c.row_bytes && stride <= kMaxPitch; };
  if (c.rows == 1 || (c.to_stride == c.row_bytes && c.from_stride == c.row_bytes)) {
    check(cudaMemcpyAsync(c.to, c.from, size(c.row_bytes * c.rows), kind, stream.handle), doing);
  } else if (pitched(c.to_stride) && pitched(c.from_stride)) {
    check(cudaMemcpy2DAsync(c.to, size(c.to_stride), c.from, size(c.from_stride), size(c.row_bytes), size(c.rows), kind,
                            stream.handle),
          doing);
  } else {
    for (std::int64_t r = 0; r < c.rows; ++r) {
      check(cudaMemcpyAsync(c.to + r * c.to_stride, c.from + r * c.from_stride, size(c.row_bytes), kind, stream.handle),
            doing);
    }
  }
}

}  // namespace conclave::cuda
