// Hopper's matrix instruction of a warpgroup with both operands in shared memory: 64 rows of int8 times N columns, as
// wgmma.cuh has rows, 32 of k at a time. Warp w of the four has rows 16 w to 16 w + 15; lane l has of the result
//   4 n + i: row l / 4 + 8 (i / 2), column 8 n + 2 (l % 4) + i % 2
#pragma once

#include "backends/cuda/wgmma.cuh"
#include "backends/cuda/wgmma_sums.cuh"

namespace conclave::cuda {

#define CONCLAVE_INTS_8(i)                                                                                    \
  "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]), "+r"(c[i + 6]), \
      "+r"(c[i + 7])
#define CONCLAVE_INTS_16(i) CONCLAVE_INTS_8(i), CONCLAVE_INTS_8(i + 8)
#define CONCLAVE_WGMMA(shape, names, operands, p, ...)                                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p                                               \
               ", 0;\n"                                                                            \
               "wgmma.mma_async.sync.aligned." shape ".s32.s8.s8 {" names "}, " operands ", p;\n}" \
               : __VA_ARGS__                                                                       \
               : "l"(rows), "l"(columns), "n"(kAdd ? 1 : 0))

// c = rows columns, or c += rows columns.
template <int N, bool kAdd>
__device__ __forceinline__ void wgmma_digits(int (&c)[N / 2], std::uint64_t rows, std::uint64_t columns) {
  static_assert(N == 32 || N == 80);
  if constexpr (N == 32) {
    CONCLAVE_WGMMA("m64n32k32", CONCLAVE_NAMES_16, "%16, %17", "%18", CONCLAVE_INTS_16(0));
  } else {
    CONCLAVE_WGMMA("m64n80k32", CONCLAVE_NAMES_40, "%40, %41", "%42", CONCLAVE_INTS_16(0), CONCLAVE_INTS_16(16),
                   CONCLAVE_INTS_8(32));
  }
}

#undef CONCLAVE_WGMMA
#undef CONCLAVE_INTS_16
#undef CONCLAVE_INTS_8

}  // namespace conclave::cuda
