// The matrix instruction of a warpgroup as attention of prompts takes it: 64 rows of f16, summed in f32. Lane l of warp
// w has of every product rows 16 w + l / 4 and 8 further on; sums 4 n + i: column 8 n + 2 (l % 4) + i % 2, the second
// row where i is 2 or 3. sm_90a.
//
// Rows of a tile lie in shared memory in runs of 64 numbers, 128 bytes, swapped about as wgmma.cuh has it; the second
// 64 numbers of all rows lie behind the first 64 of all.
#pragma once

#include "backends/cuda/wgmma.cuh"

namespace conclave::cuda {

// Rows of values, by which weights are multiplied: a row is one of k. `half`: bytes from the first 64 numbers of the
// rows to the second.
__device__ __forceinline__ std::uint64_t values_descriptor(unsigned shared, int half) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kEightRows | std::uint64_t(static_cast<unsigned>(half / 16)) << 16 | shared >> 4;
}

#define CONCLAVE_SUMS_8(i)                                                                                    \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), \
      "+f"(c[i + 7])
#define CONCLAVE_SUMS_32(i) CONCLAVE_SUMS_8(i), CONCLAVE_SUMS_8(i + 8), CONCLAVE_SUMS_8(i + 16), CONCLAVE_SUMS_8(i + 24)
#define CONCLAVE_NAMES_32                                                                  \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
  "%24,%25,%26,%27,%28,%29,%30,%31"
#define CONCLAVE_NAMES_64                                                                                             \
  CONCLAVE_NAMES_32                                                                                                   \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59," \
  "%60,%61,%62,%63"

// c = a b, or c += a b: 128 rows of b, 16 numbers of each.
template <bool kAdd>
__device__ __forceinline__ void wgmma_scores(float (&c)[64], std::uint64_t a, std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" CONCLAVE_NAMES_64 "}, %64, %65, p, 1, 1, 0, 0;\n}"
      : CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_32(32)
      : "l"(a), "l"(b), "n"(kAdd ? 1 : 0));
}

// c += a b: 16 rows of b, d numbers of each.
__device__ __forceinline__ void add_wgmma_values(float (&c)[64], const unsigned (&a)[4], std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" CONCLAVE_NAMES_64
      "}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}"
      : CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_32(32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void add_wgmma_values(float (&c)[32], const unsigned (&a)[4], std::uint64_t b) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" CONCLAVE_NAMES_32
      "}, {%32,%33,%34,%35}, %36, p, 1, 1, 1;\n}"
      : CONCLAVE_SUMS_32(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef CONCLAVE_NAMES_64
#undef CONCLAVE_NAMES_32
#undef CONCLAVE_SUMS_32
#undef CONCLAVE_SUMS_8

// What comes next uses these only after what came before: a wait, for the compiler, has nothing to do with them.
template <int n>
__device__ __forceinline__ void hold_sums(float (&c)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

// Barriers of 256 threads at which those of one warpgroup wait for those of another, who do not.
__device__ __forceinline__ void wait_for_turn(int id) {
  asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory");
}
__device__ __forceinline__ void give_turn(int id) {
  asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory");
}

}  // namespace conclave::cuda
