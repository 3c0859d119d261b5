// Shared memory by addresses of 32 bits. Where an address comes from a pointer the compiler works it out again wherever
// it is used, and short kernels hardly do anything else.
#pragma once

#include <cstdint>

#include "backends/cuda/mma.cuh"

namespace conclave::cuda {

// x, which stays in a register: the compiler does not know how to make it again.
__device__ __forceinline__ unsigned kept(unsigned x) {
  unsigned y;
  asm volatile("mov.u32 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}
__device__ __forceinline__ unsigned kept_address(const void* p) {
  return kept(shared_address(p));
}

__device__ __forceinline__ uint4 load_shared_16(unsigned at) {
  uint4 y;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(y.x), "=r"(y.y), "=r"(y.z), "=r"(y.w) : "r"(at));
  return y;
}
__device__ __forceinline__ float2 load_shared_8(unsigned at) {
  float2 y;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(y.x), "=f"(y.y) : "r"(at));
  return y;
}
__device__ __forceinline__ unsigned load_shared_4(unsigned at) {
  unsigned y;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(y) : "r"(at));
  return y;
}
__device__ __forceinline__ std::uint16_t load_shared_2(unsigned at) {
  std::uint16_t y;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(y) : "r"(at));
  return y;
}
__device__ __forceinline__ void store_shared(unsigned at, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(x) : "memory");
}

}  // namespace conclave::cuda
