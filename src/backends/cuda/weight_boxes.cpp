#include "backends/cuda/weight_boxes.h"

#include "backends/cuda/tensor_map.h"

namespace conclave::cuda {
namespace {

bool encode(CUtensorMap& map, const PrefillArgs& args, const BoxedWeights& w, std::int64_t n, int span) {
  const bool bank = args.bank_out != nullptr;
  const std::int64_t run = bank ? kBankRun : n;
  const std::int64_t experts = args.table.begin == nullptr ? 1 : args.table.n_experts;
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(args.chunks * block_bytes(args.type) / 4),
                             static_cast<cuuint64_t>(run), static_cast<cuuint64_t>(n / run),
                             static_cast<cuuint64_t>(experts)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(w.column), static_cast<cuuint64_t>(w.column * run),
                                static_cast<cuuint64_t>(experts == 1 ? w.column * n : w.expert)};
  const int columns = args.up != nullptr ? kPrefillGroupColumns / 2 : kPrefillGroupColumns;
  const cuuint32_t box[] = {static_cast<cuuint32_t>(prefill_box_column(args.type, span) / 4),
                            static_cast<cuuint32_t>(bank ? columns / kBankRuns : columns),
                            static_cast<cuuint32_t>(bank ? kBankRuns : 1), 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  return tensor_map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 4, const_cast<std::byte*>(w.data), dims, strides,
                              box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

WeightBoxes weight_boxes(const PrefillArgs& args, int span) {
  WeightBoxes boxes{};
  if (tensor_map_encoder() == nullptr) return boxes;
  // Of a bank gate and up alone are known to the kernel, and whole runs of columns.
  if (args.bank_out != nullptr && (args.up == nullptr || args.side[0].n % kBankRun != 0)) return boxes;
  boxes.given = true;
  for (int i = 0; i < kPrefillSides; ++i) {
    const PrefillSide& side = args.side[i];
    if (side.n > 0) boxes.given &= encode(boxes.map[i], args, {side.w, side.w_column, side.w_expert}, side.n, span);
  }
  if (args.up != nullptr) {
    boxes.given &= encode(boxes.map[1], args, {args.up, args.up_column, args.up_expert}, args.side[0].n, span);
  }
  return boxes;
}

}  // namespace conclave::cuda
