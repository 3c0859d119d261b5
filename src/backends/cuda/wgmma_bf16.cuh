// Hopper's matrix instruction of a warpgroup with operands of bf16 and sums of f32: see wgmma.cuh.
//
// 64 columns of weights in registers times N rows in shared memory, 16 of k at a time. Lane l of warp w has
//   weights   word i: column 16 w + l / 4 + 8 (i % 2), k 2 (l % 4) + 8 (i / 2) and the next
//   sums      4 n + i: column 16 w + l / 4 + 8 (i / 2), row 8 n + 2 (l % 4) + i % 2
#pragma once

#include "backends/cuda/wgmma.cuh"
#include "backends/cuda/wgmma_sums.cuh"

namespace conclave::cuda {

#define CONCLAVE_WGMMA(shape, names, operands, ...)                                                    \
  asm volatile(                                                                                        \
      "{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                                       \
      "wgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" names "}, " operands ", p, 1, 1, 0;\n}" \
      : __VA_ARGS__                                                                                    \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(rows))

// c += a b
template <int N>
__device__ __forceinline__ void wgmma_bf16(float (&c)[N / 2], const unsigned (&a)[4], std::uint64_t rows) {
  static_assert(N == 16 || N == 32 || N == 48 || N == 64 || N == 96 || N == 112 || N == 128 || N == 144 || N == 160);
  if constexpr (N == 16) {
    CONCLAVE_WGMMA("m64n16k16", CONCLAVE_NAMES_8, "{%8,%9,%10,%11}, %12", CONCLAVE_SUMS_8(0));
  } else if constexpr (N == 32) {
    CONCLAVE_WGMMA("m64n32k16", CONCLAVE_NAMES_16, "{%16,%17,%18,%19}, %20", CONCLAVE_SUMS_16(0));
  } else if constexpr (N == 48) {
    CONCLAVE_WGMMA("m64n48k16", CONCLAVE_NAMES_24, "{%24,%25,%26,%27}, %28", CONCLAVE_SUMS_16(0), CONCLAVE_SUMS_8(16));
  } else if constexpr (N == 64) {
    CONCLAVE_WGMMA("m64n64k16", CONCLAVE_NAMES_32, "{%32,%33,%34,%35}, %36", CONCLAVE_SUMS_32(0));
  } else if constexpr (N == 96) {
    CONCLAVE_WGMMA("m64n96k16", CONCLAVE_NAMES_48, "{%48,%49,%50,%51}, %52", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_16(32));
  } else if constexpr (N == 112) {
    CONCLAVE_WGMMA("m64n112k16", CONCLAVE_NAMES_56, "{%56,%57,%58,%59}, %60", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_16(32),
                   CONCLAVE_SUMS_8(48));
  } else if constexpr (N == 128) {
    CONCLAVE_WGMMA("m64n128k16", CONCLAVE_NAMES_64, "{%64,%65,%66,%67}, %68", CONCLAVE_SUMS_32(0),
                   CONCLAVE_SUMS_32(32));
  } else if constexpr (N == 144) {
    CONCLAVE_WGMMA("m64n144k16", CONCLAVE_NAMES_72, "{%72,%73,%74,%75}, %76", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_32(32),
                   CONCLAVE_SUMS_8(64));
  } else {
    CONCLAVE_WGMMA("m64n160k16", CONCLAVE_NAMES_80, "{%80,%81,%82,%83}, %84", CONCLAVE_SUMS_32(0), CONCLAVE_SUMS_32(32),
                   CONCLAVE_SUMS_16(64));
  }
}

#undef CONCLAVE_WGMMA

}  // namespace conclave::cuda
