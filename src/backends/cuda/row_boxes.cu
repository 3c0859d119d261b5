#include "backends/cuda/row_boxes.h"

#include <cuda_runtime.h>

namespace conclave::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's own function: the program is not linked with the driver.
Encode find_encode() {
  constexpr unsigned kVersion = 12000;
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kVersion, cudaEnableDefault, &found);
  return error == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(function) : nullptr;
}

}  // namespace

RowBoxes row_boxes(const std::uint16_t* bank, std::int64_t rows, std::int64_t k, std::int64_t stride) {
  static const Encode encode = find_encode();
  RowBoxes boxes{};
  if (encode == nullptr) return boxes;
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(stride) * 2};
  const cuuint32_t box[] = {64, kBoxRows};
  const cuuint32_t steps[] = {1, 1};
  boxes.given = encode(&boxes.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<std::uint16_t*>(bank), dims, strides,
                       box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                       CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
  return boxes;
}

}  // namespace conclave::cuda
