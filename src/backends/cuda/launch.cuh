// How kernels are launched, and what each of them begins with.
//
// Launches overlap: a kernel may start while the one before it still runs (programmatic dependent launch). So every
// kernel calls begin() before it reads anything that is not a weight and before it writes anything but its own shared
// memory: it waits there until all work before it on the stream has finished and can be seen.
#pragma once

#include <cuda_runtime.h>

#include "backends/cuda/view.h"

namespace conclave::cuda {

__device__ __forceinline__ void begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class Kernel, class... Args>
cudaError_t launch(Kernel* kernel, const LaunchPlan& plan, const Stream& stream, const Args&... args) {
  if (plan.blocks == 0) return cudaSuccess;
  if (plan.blocks > kMaxBlocks) return cudaErrorInvalidConfiguration;
  if (plan.shared_bytes > 48 * 1024) {
    // Never down again: a launch that was captured before may need more than this one.
    cudaFuncAttributes attributes{};
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error == cudaSuccess && attributes.maxDynamicSharedSizeBytes < plan.shared_bytes) {
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(plan.shared_bytes));
    }
    if (error != cudaSuccess) return error;
  }
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
