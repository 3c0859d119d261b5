#include "backends/cuda/row_boxes.h"

#include "backends/cuda/tensor_map.h"

namespace conclave::cuda {

RowBoxes row_boxes(const std::uint16_t* bank, std::int64_t rows, std::int64_t k, std::int64_t stride) {
  const EncodeTensorMap encode = tensor_map_encoder();
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
