#include "backends/cuda/launch.cuh"

namespace conclave::cuda {
namespace {

__global__ void nothing() {
  begin();
}

}  // namespace

int built_for(int* architecture) {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, nothing);
  if (error == cudaSuccess) *architecture = attributes.ptxVersion;
  return error;
}

}  // namespace conclave::cuda
