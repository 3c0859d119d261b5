// Copies of many bytes from global to shared memory by one thread, which a barrier in shared memory counts (wgmma.cuh).
// Addresses and sizes are multiples of 16. Hopper alone.
#pragma once

#include "backends/cuda/wgmma.cuh"

namespace conclave::cuda {

#if __CUDA_ARCH__ >= 900
// Barriers that this thread has set up can be used by its copies.
__device__ __forceinline__ void end_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and lets the phase end no sooner than so many bytes have come.
__device__ __forceinline__ void expect_bytes(unsigned address, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
}
__device__ __forceinline__ void expect_bytes(std::uint64_t* barrier, int bytes) {
  expect_bytes(shared_address(barrier), bytes);
}
__device__ __forceinline__ void copy_bulk(unsigned to, const void* from, int bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void copy_bulk(unsigned to, const void* from, int bytes, std::uint64_t* barrier) {
  copy_bulk(to, from, bytes, shared_address(barrier));
}
__device__ __forceinline__ void copy_bulk(void* to, const void* from, int bytes, std::uint64_t* barrier) {
  copy_bulk(shared_address(to), from, bytes, barrier);
}
// A box of a tensor of rank 2 (row_boxes.h), from element (y, x) on; past the tensor's end it is zeros.
__device__ __forceinline__ void copy_box(unsigned to, const void* map, int x, int y, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void copy_box(unsigned to, const void* map, int x, int y, std::uint64_t* barrier) {
  copy_box(to, map, x, y, shared_address(barrier));
}
// The same of rank 3.
__device__ __forceinline__ void copy_box(unsigned to, const void* map, int x, int y, int z, std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier))
      : "memory");
}
// The same of rank 4.
__device__ __forceinline__ void copy_box(unsigned to, const void* map, int x, int y, int z, int w,
                                         std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(shared_address(barrier))
      : "memory");
}
// The map is wanted soon.
__device__ __forceinline__ void fetch_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
#endif

}  // namespace conclave::cuda
