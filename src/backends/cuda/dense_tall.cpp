#include "backends/cuda/dense_tall_plan.h"
#include "backends/cuda/tensor_map.h"

namespace conclave::cuda {

bool map_tall_rows(CUtensorMap& map, const DenseArgs& args) {
  const EncodeTensorMap encode = tensor_map_encoder();
  if (encode == nullptr) return false;
  const std::int64_t k = std::int64_t{args.chunks} * kChunk;
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(args.rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(k)};
  const cuuint32_t box[] = {kChunk / 2, kTallRows};
  const cuuint32_t steps[] = {1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<std::int8_t*>(args.q), dims, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace conclave::cuda
