// Copies of what a step reads once, its weights: they leave the L2 before anything else does, and what was computed
// stays. H200, 2026-11-16: with experts alone read so, and whole matrices not, a model was slower than with neither.
#pragma once

#include <cstdint>

#include "backends/cuda/wgmma.cuh"

namespace conclave::cuda {

inline constexpr std::uint64_t kReadOnce = 0x12F0000000000000;  // what createpolicy makes of L2::evict_first

__device__ __forceinline__ void copy_16_once(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(kReadOnce));
}
#if __CUDA_ARCH__ >= 900
// Bytes one after another (bulk_copy.cuh).
__device__ __forceinline__ void copy_bulk_once(unsigned to, const void* from, int bytes, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(kReadOnce)
      : "memory");
}
// A box of a tensor of rank 3 (bulk_copy.cuh).
__device__ __forceinline__ void copy_box_once(unsigned to, const void* map, int x, int y, int z,
                                              std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3, "
      "%4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "l"(kReadOnce)
      : "memory");
}
#endif

}  // namespace conclave::cuda
