#include "backends/cuda/few_boxes_plan.h"
#include "backends/cuda/tensor_map.h"

namespace conclave::cuda {
namespace {

// Elements are of four bytes: a box may have 256 of them side by side.
bool encode(CUtensorMap& map, const UnitArgs& args, const BoxedWeights& w, std::int64_t box_bytes, int box_columns) {
  const EncodeTensorMap encoder = tensor_map_encoder();
  if (encoder == nullptr) return false;
  const std::int64_t row = args.type == DType::q4_k ? std::int64_t{args.chunks} * block_bytes(args.type)
                                                    : PlanesQ6K{args.chunks}.row_bytes();
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(row / 4), static_cast<cuuint64_t>(args.n),
                             static_cast<cuuint64_t>(args.table.n_experts)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(w.column), static_cast<cuuint64_t>(w.expert)};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_bytes / 4), static_cast<cuuint32_t>(box_columns), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  return encoder(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 3, const_cast<std::byte*>(w.data), dims, strides, box, steps,
                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

FewBoxes few_boxes(const UnitArgs& args) {
  const bool gate_up = args.up != nullptr;
  const bool whole = !gate_up && args.chunks == kWholeSpan;
  if (args.table.begin == nullptr || !boxes_fit(args.type, args.chunks, gate_up)) return {};
  FewBoxes boxes{.span = whole ? kWholeSpan : 2};
  const BoxedWeights w{args.w, args.w_column, args.w_expert};
  const int columns = gate_up ? kTile / 2 : kTile;
  const int rest = box_rest(args.type, boxes.span);
  bool made = encode(boxes.map[0], args, w, box_column(args.type, boxes.span), columns);
  if (gate_up) {
    const BoxedWeights up{args.up, args.up_column, args.up_expert};
    made = made && encode(boxes.map[1], args, up, box_column(args.type, boxes.span), columns);
  } else if (rest > 0) {
    made = made && encode(boxes.map[1], args, w, rest, columns);
  }
  return made ? boxes : FewBoxes{};
}

int launch_few(const UnitArgs& args, std::int64_t max_active, bool hopper, const Stream& stream) {
  if (hopper && !shares_tiles(max_active, args.n, args.up != nullptr)) {
    if (const FewBoxes boxes = few_boxes(args); boxes.span > 0) return launch_few_boxes(args, boxes, stream);
  }
  return launch_few_rows(args, max_active, stream);
}

}  // namespace conclave::cuda
