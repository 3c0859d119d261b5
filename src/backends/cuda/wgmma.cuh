// Hopper's matrix instruction of a warpgroup (128 threads), and the barriers in shared memory that kernels built around
// it wait at. sm_90a.
//
// 64 columns of weights, decoded in registers, times N rows of activations in shared memory, 32 of k at a time. Warp w
// of the four has columns 16 w to 16 w + 15. Registers are those of mma_s8_k32 and its results: lane l has
//   levels   word i: column l / 4 + 8 (i % 2), k 4 (l % 4) + 16 (i / 2) on
//   sums     4 n + i: column l / 4 + 8 (i / 2), row 8 n + 2 (l % 4) + i % 2
// Sums of activations are f16, 16 of them a row; results in f32, likewise.
//
// Rows lie in shared memory in runs of 128 bytes, eight runs after one another from an address that 1024 divides;
// 16-byte word p of row r is at place p ^ r % 8 of its run. Of a row's sums, the two 16-byte words are 128 bytes apart,
// each next to those of the seven rows around it.
#pragma once

#include <cstdint>

#include "backends/cuda/mma.cuh"

// Whether this is compiled for sm_90a, which alone has these instructions.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONCLAVE_HOPPER 1
#else
#define CONCLAVE_HOPPER 0
#endif

namespace conclave::cuda {

// Rows as the instruction finds them: the first 32 bytes of the runs from `shared` on.
__device__ __forceinline__ std::uint64_t rows_descriptor(unsigned shared) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 / 16} << 32;
  constexpr std::uint64_t kUnused = std::uint64_t{1} << 16;
  return kSwizzle128 | kEightRows | kUnused | shared >> 4;
}
// Those `bytes` further on: a multiple of 1024, and 0, 32, 64 or 96.
__device__ __forceinline__ std::uint64_t descriptor_at(std::uint64_t rows, int bytes) {
  return rows + static_cast<unsigned>(bytes / 16);
}

// A row's sums, from `shared` on: bytes to its first word.
constexpr int sums_place(int row) {
  return row / 8 * 256 + row % 8 * 16;
}
// Sums of the rows from one on that eight divides, whose first word is at `shared`.
__device__ __forceinline__ std::uint64_t sums_descriptor(unsigned shared) {
  constexpr std::uint64_t kEightRows = std::uint64_t{256 / 16} << 32;
  constexpr std::uint64_t kNextWord = std::uint64_t{128 / 16} << 16;
  return kEightRows | kNextWord | shared >> 4;
}

// What was written to registers before is there for the instructions that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// What others wrote to shared memory, and this thread has waited for, is there for wgmma.
__device__ __forceinline__ void shared_for_wgmma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#define CONCLAVE_OUT_8(i)                                                                                     \
  "+r"(c[i]), "+r"(c[i + 1]), "+r"(c[i + 2]), "+r"(c[i + 3]), "+r"(c[i + 4]), "+r"(c[i + 5]), "+r"(c[i + 6]), \
      "+r"(c[i + 7])
#define CONCLAVE_OUT_16(i) CONCLAVE_OUT_8(i), CONCLAVE_OUT_8(i + 8)
#define CONCLAVE_NAMES_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define CONCLAVE_NAMES_32 CONCLAVE_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define CONCLAVE_NAMES_48 CONCLAVE_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define CONCLAVE_WGMMA(shape, type, names, operands, p, ...)                                             \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " p                                                     \
               ", 0;\n"                                                                                  \
               "wgmma.mma_async.sync.aligned." shape ".s32." type ".s8 {" names "}, " operands ", p;\n}" \
               : __VA_ARGS__                                                                             \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows), "n"(kAdd ? 1 : 0))

// c = a b, or c += a b. The bytes of a are signed or not; those of b are signed.
template <int N, bool kSigned, bool kAdd>
__device__ __forceinline__ void wgmma_s8(int (&c)[N / 2], const unsigned (&a)[4], std::uint64_t rows) {
  static_assert(N == 32 || N == 64 || N == 96);
  if constexpr (N == 32 && kSigned) {
    CONCLAVE_WGMMA("m64n32k32", "s8", CONCLAVE_NAMES_16, "{%16,%17,%18,%19}, %20", "%21", CONCLAVE_OUT_16(0));
  } else if constexpr (N == 32) {
    CONCLAVE_WGMMA("m64n32k32", "u8", CONCLAVE_NAMES_16, "{%16,%17,%18,%19}, %20", "%21", CONCLAVE_OUT_16(0));
  } else if constexpr (N == 64 && kSigned) {
    CONCLAVE_WGMMA("m64n64k32", "s8", CONCLAVE_NAMES_32, "{%32,%33,%34,%35}, %36", "%37", CONCLAVE_OUT_16(0),
                   CONCLAVE_OUT_16(16));
  } else if constexpr (N == 64) {
    CONCLAVE_WGMMA("m64n64k32", "u8", CONCLAVE_NAMES_32, "{%32,%33,%34,%35}, %36", "%37", CONCLAVE_OUT_16(0),
                   CONCLAVE_OUT_16(16));
  } else if constexpr (N == 96 && kSigned) {
    CONCLAVE_WGMMA("m64n96k32", "s8", CONCLAVE_NAMES_48, "{%48,%49,%50,%51}, %52", "%53", CONCLAVE_OUT_16(0),
                   CONCLAVE_OUT_16(16), CONCLAVE_OUT_16(32));
  } else {
    CONCLAVE_WGMMA("m64n96k32", "u8", CONCLAVE_NAMES_48, "{%48,%49,%50,%51}, %52", "%53", CONCLAVE_OUT_16(0),
                   CONCLAVE_OUT_16(16), CONCLAVE_OUT_16(32));
  }
}

#undef CONCLAVE_WGMMA

#define CONCLAVE_RESULT_8(i)                                                                                  \
  "=f"(c[i]), "=f"(c[i + 1]), "=f"(c[i + 2]), "=f"(c[i + 3]), "=f"(c[i + 4]), "=f"(c[i + 5]), "=f"(c[i + 6]), \
      "=f"(c[i + 7])
#define CONCLAVE_WGMMA(shape, names, operands, ...)                                                  \
  asm volatile(                                                                                      \
      "{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"                                                     \
      "wgmma.mma_async.sync.aligned." shape ".f32.f16.f16 {" names "}, " operands ", p, 1, 1, 0;\n}" \
      : __VA_ARGS__                                                                                  \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(sums))

// c = a b, in f16: 16 of k, N rows.
template <int N>
__device__ __forceinline__ void wgmma_f16(float (&c)[N / 2], const unsigned (&a)[4], std::uint64_t sums) {
  static_assert(N == 16 || N == 32 || N == 48);
  if constexpr (N == 16) {
    CONCLAVE_WGMMA("m64n16k16", "%0,%1,%2,%3,%4,%5,%6,%7", "{%8,%9,%10,%11}, %12", CONCLAVE_RESULT_8(0));
  } else if constexpr (N == 32) {
    CONCLAVE_WGMMA("m64n32k16", CONCLAVE_NAMES_16, "{%16,%17,%18,%19}, %20", CONCLAVE_RESULT_8(0),
                   CONCLAVE_RESULT_8(8));
  } else {
    CONCLAVE_WGMMA("m64n48k16", CONCLAVE_NAMES_16 ",%16,%17,%18,%19,%20,%21,%22,%23", "{%24,%25,%26,%27}, %28",
                   CONCLAVE_RESULT_8(0), CONCLAVE_RESULT_8(8), CONCLAVE_RESULT_8(16));
  }
}

#undef CONCLAVE_WGMMA
#undef CONCLAVE_RESULT_8
#undef CONCLAVE_NAMES_48
#undef CONCLAVE_NAMES_32
#undef CONCLAVE_NAMES_16
#undef CONCLAVE_OUT_16
#undef CONCLAVE_OUT_8

// A barrier in shared memory: a phase ends with its count of arrivals. Who waits names the parity of the phase, 0
// first; parity 1 of a barrier that is new has ended.
__device__ __forceinline__ void barrier_init(unsigned address, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_init(std::uint64_t* barrier, int count) {
  barrier_init(shared_address(barrier), count);
}
__device__ __forceinline__ void barrier_arrive(unsigned address) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* barrier) {
  barrier_arrive(shared_address(barrier));
}
// Arrives once all copies that this thread has begun are there.
__device__ __forceinline__ void barrier_arrive_with_copies(std::uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// A warp that waits sleeps up to so many nanoseconds at a time: one that asked again and again would take issue slots.
__device__ __forceinline__ void barrier_wait(unsigned address, unsigned parity) {
  constexpr unsigned kNanoseconds = 2000;
  unsigned ended = 0;
  while (ended == 0) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ended)
                 : "r"(address), "r"(parity), "r"(kNanoseconds)
                 : "memory");
  }
}
__device__ __forceinline__ void barrier_wait(std::uint64_t* barrier, unsigned parity) {
  barrier_wait(shared_address(barrier), parity);
}
// The same where nobody else wants the issue slots: to wake takes time. H200, 2026-11-16: in the kernels of one token 3%
// of a step.
__device__ __forceinline__ void barrier_wait_awake(unsigned address, unsigned parity) {
  unsigned ended = 0;
  while (ended == 0) {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ended)
                 : "r"(address), "r"(parity)
                 : "memory");
  }
}
__device__ __forceinline__ void barrier_wait_awake(std::uint64_t* barrier, unsigned parity) {
  barrier_wait_awake(shared_address(barrier), parity);
}

// Where a ring stands. Who fills waits for the parity before.
template <int kPlaces>
struct Ring {
  int place = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void next() {
    if (++place == kPlaces) {
      place = 0;
      parity ^= 1U;
    }
  }
};

// How many registers a thread of this warpgroup has from here on.
template <int kRegisters>
__device__ __forceinline__ void more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// A barrier of 128 of the block's threads; 0 is __syncthreads().
__device__ __forceinline__ void group_barrier(int id) {
  asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

}  // namespace conclave::cuda
