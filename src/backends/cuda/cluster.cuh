// Blocks of a cluster, which reach each other's shared memory. sm_90 and later: before, these do nothing.
#pragma once

#include "backends/cuda/mma.cuh"
#include "backends/cuda/view.h"

namespace conclave::cuda {

// Whole warps arrive, and wait later: what they wrote before is seen by all of the cluster after.
__device__ __forceinline__ void arrive_at_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
// The same where nothing was written that others are to see: it waits for no store.
__device__ __forceinline__ void arrive_at_cluster_relaxed() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ void await_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// To where `p` lies in the shared memory of another block.
__device__ __forceinline__ unsigned address_in_block(const void* p, int rank) {
  unsigned there = shared_address(p);
#if __CUDA_ARCH__ >= 900
  asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(there) : "r"(rank));
#endif
  return there;
}
__device__ __forceinline__ void store_in_cluster(unsigned address, float value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
#endif
}
__device__ __forceinline__ void store_in_cluster(unsigned address, unsigned value) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
#endif
}
__device__ __forceinline__ float load_in_cluster(unsigned address) {
  float value = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
#endif
  return value;
}
__device__ __forceinline__ float2 load_2_in_cluster(unsigned address) {
  float2 value{};
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(value.x), "=f"(value.y) : "r"(address) : "memory");
#endif
  return value;
}

// How many clusters of such a launch run at once on the current GPU; 0: it has none. What the kernel is allowed has been
// set, as `error` says.
template <class Kernel>
int clusters_at_once(cudaError_t error, Kernel kernel, const LaunchPlan& plan) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.cluster));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {static_cast<unsigned>(plan.cluster), 1, 1};
  config.attrs = &cluster;
  config.numAttrs = 1;
  int count = 0;
  if (error != cudaSuccess || cudaOccupancyMaxActiveClusters(&count, kernel, &config) != cudaSuccess) {
    cudaGetLastError();  // it is nobody else's
    return 0;
  }
  return count;
}

}  // namespace conclave::cuda
