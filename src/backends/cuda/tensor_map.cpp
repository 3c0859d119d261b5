#include "backends/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

namespace conclave::cuda {
namespace {

EncodeTensorMap find_encoder() {
  constexpr unsigned kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<EncodeTensorMap>(function)
                                                                      : nullptr;
}

}  // namespace

EncodeTensorMap tensor_map_encoder() {
  static const EncodeTensorMap encoder = find_encoder();
  return encoder;
}

}  // namespace conclave::cuda
