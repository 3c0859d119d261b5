#include "backends/cuda/host_stage.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "backends/cuda/cuda_check.h"

namespace conclave::cuda {

HostStage::HostStage(std::size_t bytes) : size_(bytes) {
  void* data = nullptr;
  check(cudaMallocHost(&data, bytes), "memory for copies");
  data_ = static_cast<std::byte*>(data);
}

HostStage::~HostStage() {
  cudaFreeHost(data_);
}

std::span<std::byte> HostStage::take(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::span<std::byte> taken(data_ + used_, bytes);
  used_ = std::min(size_, (used_ + bytes + kAlignment - 1) / kAlignment * kAlignment);
  return taken;
}

}  // namespace conclave::cuda
