// Hopper's matrix instruction of a warpgroup with both operands in shared memory, of f16 or bf16, and sums of f32: see
// wgmma.cuh.
//
// 64 columns of weights times N rows, 16 of k at a time; columns lie as rows do. Sums are those of wgmma_bf16.cuh.
#pragma once

#include "backends/cuda/wgmma.cuh"
#include "backends/cuda/wgmma_sums.cuh"
#include "tensor/dtype.h"

namespace conclave::cuda {

#define CONCLAVE_WGMMA_OF(shape, types, names, operands, ...)                                             \
  asm volatile(                                                                                           \
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                          \
      "wgmma.mma_async.sync.aligned." shape ".f32." types " {" names "}, " operands ", p, 1, 1, 0, 0;\n}" \
      : __VA_ARGS__                                                                                       \
      : "l"(columns), "l"(rows))
#define CONCLAVE_WGMMA(shape, names, operands, ...)                      \
  if constexpr (type == DType::f16) {                                    \
    CONCLAVE_WGMMA_OF(shape, "f16.f16", names, operands, __VA_ARGS__);   \
  } else {                                                               \
    CONCLAVE_WGMMA_OF(shape, "bf16.bf16", names, operands, __VA_ARGS__); \
  }

// c += columns rows
template <DType type, int N>
__device__ __forceinline__ void wgmma_half(float (&c)[N / 2], std::uint64_t columns, std::uint64_t rows) {
  static_assert(N == 16 || N == 32 || N == 48 || N == 64 || N == 96 || N == 112 || N == 128 || N == 144 || N == 160);
  if constexpr (N == 16) {
    CONCLAVE_WGMMA("m64n16k16", CONCLAVE_NAMES_8, "%8, %9", CONCLAVE_SUMS_8(0));
  } else if constexpr (N == 32) {
    CONCLAVE_WGMMA("m64n32k16", CONCLAVE_NAMES_16, "%16, %17", CONCLAVE_SUMS_16(0));
  } else if constexpr (N == 48) {
    CONCLAVE_WGMMA("m64n48k16", CONCLAVE_NAMES_24, "%24, %25", CONCLAVE_SUMS_16(0), CONCLAVE_SUMS_8(16));
  } else if constexpr (N == 64) {
    CONCLAVE_WGMMA("m64n64k16", CONCLAVE_NAMES_32, "%32, %33", CONCLAVE_SUMS_32(0));
  } else if constexpr (N == 96) {
    CONCLAVE_WGMMA("m64n96k16", CONCLAVE_NAMES_48, "%48, %49", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_16(32));
  } else if constexpr (N == 112) {
    CONCLAVE_WGMMA("m64n112k16", CONCLAVE_NAMES_56, "%56, %57", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_16(32),
                   CONCLAVE_SUMS_8(48));
  } else if constexpr (N == 128) {
    CONCLAVE_WGMMA("m64n128k16", CONCLAVE_NAMES_64, "%64, %65", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_32(32));
  } else if constexpr (N == 144) {
    CONCLAVE_WGMMA("m64n144k16", CONCLAVE_NAMES_72, "%72, %73", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_32(32),
                   CONCLAVE_SUMS_8(64));
  } else {
    CONCLAVE_WGMMA("m64n160k16", CONCLAVE_NAMES_80, "%80, %81", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_32(32),
                   CONCLAVE_SUMS_16(64));
  }
}

#undef CONCLAVE_WGMMA
#undef CONCLAVE_WGMMA_OF

}  // namespace conclave::cuda
