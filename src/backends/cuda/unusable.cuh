// The count of rows that no expert could be chosen for.
#pragma once

#include <cstdint>

namespace conclave::cuda {

// no_finite goes up by `rows` and stays at 2^31 - 1.
__device__ __forceinline__ void count_unusable(std::int32_t* no_finite, std::int32_t rows) {
  constexpr std::int32_t kMost = 0x7FFFFFFF;
  std::int32_t seen = *reinterpret_cast<volatile std::int32_t*>(no_finite);
  while (seen < kMost) {
    const std::int32_t next = seen > kMost - rows ? kMost : seen + rows;
    const std::int32_t before = atomicCAS(no_finite, seen, next);
    if (before == seen) return;
    seen = before;
  }
}

}  // namespace conclave::cuda
