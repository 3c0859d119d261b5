#include "backends/cuda/host_stage.h"

#include <cuda_runtime_api.h>

#include "backends/cuda/cuda_check.h"

namespace conclave::cuda {

PinnedBytes::PinnedBytes(std::size_t size) : size_(size) {
  void* data = nullptr;
  check(cudaMallocHost(&data, size), "memory for copies");
  data_ = static_cast<std::byte*>(data);
}

PinnedBytes::~PinnedBytes() {
  cudaFreeHost(data_);
}

}  // namespace conclave::cuda
