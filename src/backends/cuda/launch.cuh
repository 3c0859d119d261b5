// How kernels are launched, and what each of them begins with.
//
// Launches overlap: a kernel may start while the one before it still runs (programmatic dependent launch). So every
// kernel calls begin() before it reads anything that is not a weight and before it writes anything but its own shared
// memory: it waits there until all work before it on the stream has finished and can be seen.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "backends/cuda/view.h"

namespace conclave::cuda {

__device__ __forceinline__ void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// In this order: where kernels let the next one start before they wait themselves, several wait at a time, and all are
// slower for it.
__device__ __forceinline__ void begin() {
  wait_for_earlier();
  let_next_start();
}

// The same for a kernel that is `early`: what it reads at first, the kernel before it does not write, nor one that could
// still run. It calls both, in this order, and reads what has just been written after the second.
__device__ __forceinline__ void begin_unless(bool early) {
  if (!early) begin();
}
__device__ __forceinline__ void begin_if(bool early) {
  if (early) begin();
}

// Kernels want the same split of a multiprocessor's memory, the one with most of it shared: one that wants another cannot
// start there before all that runs has ended. And room for what a block asks for, never less than before: a
// launch that was captured may need more than this one.
template <class Kernel>
cudaError_t make_room(Kernel* kernel, const LaunchPlan& plan) {
  cudaFuncAttributes attributes{};
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess && !plan.wants_cache &&
      attributes.preferredShmemCarveout != cudaSharedmemCarveoutMaxShared) {
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  }
  constexpr std::int64_t kUnasked = 48 * 1024;  // what a block may have, its own variables included, without asking
  const auto own = static_cast<std::int64_t>(attributes.sharedSizeBytes);
  if (error == cudaSuccess && own + plan.shared_bytes > kUnasked) {
    const int most = std::max(attributes.maxDynamicSharedSizeBytes, static_cast<int>(plan.shared_bytes));
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  }
  return error;
}

template <class Kernel, class... Args>
cudaError_t launch(Kernel* kernel, const LaunchPlan& plan, const Stream& stream, const Args&... args) {
  if (plan.blocks == 0) return cudaSuccess;
  if (plan.blocks > kMaxBlocks) return cudaErrorInvalidConfiguration;
  if (const cudaError_t error = make_room(kernel, plan); error != cudaSuccess) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.blocks));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  config.stream = stream.handle;
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  const auto add = [&]() -> cudaLaunchAttribute& { return attributes[config.numAttrs++]; };
  if (stream.overlaps) {
    cudaLaunchAttribute& overlap = add();
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (plan.cluster > 1) {
    cudaLaunchAttribute& cluster = add();
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(plan.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
  return cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace conclave::cuda
