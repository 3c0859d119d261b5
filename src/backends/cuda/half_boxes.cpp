#include "backends/cuda/half_boxes.h"

#include <algorithm>

#include "backends/cuda/tensor_map.h"

namespace conclave::cuda {
namespace {

struct BoxedColumns {
  const std::byte* data;
  std::int64_t n;
  std::int64_t column;  // bytes from column to column, and from expert to expert
  std::int64_t expert;
};

bool encode(CUtensorMap& map, const PrefillArgs& args, const BoxedColumns& w) {
  const EncodeTensorMap encoder = tensor_map_encoder();
  if (encoder == nullptr) return false;
  const std::int64_t expert = w.expert > 0 ? w.expert : w.n * w.column;  // one matrix: any will do
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(args.k), static_cast<cuuint64_t>(w.n),
                             static_cast<cuuint64_t>(args.table.n_experts)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(w.column), static_cast<cuuint64_t>(expert)};
  const cuuint32_t box[] = {kHalfBox, static_cast<cuuint32_t>(half_box_columns(args.up != nullptr)), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  return encoder(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<std::byte*>(w.data), dims, strides, box, steps,
                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool half_prefill_fits(const View& w) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;  // from one to the next
  bool fits = is_plain_half(w.type) && tensor_map_encoder() != nullptr &&
              reinterpret_cast<std::uintptr_t>(w.data) % 16 == 0 && w.dims[w.rank - 1] > 0;
  for (int i = 0; i + 1 < w.rank; ++i) {
    fits = fits && w.dims[i] > 0 && w.strides[i] > 0 && w.strides[i] % 16 == 0 && w.strides[i] < kMostBytes;
  }
  return fits;
}

HalfBoxes half_boxes(const PrefillArgs& args) {
  HalfBoxes boxes{};
  boxes.given = true;
  for (int i = 0; i < kPrefillSides; ++i) {
    const PrefillSide& side = args.side[i];
    if (side.n == 0) continue;
    boxes.given = boxes.given && encode(boxes.map[i], args, {side.w, side.n, side.w_column, side.w_expert});
  }
  if (args.up != nullptr) {
    boxes.given = boxes.given && encode(boxes.map[1], args, {args.up, args.side[0].n, args.up_column, args.up_expert});
  }
  return boxes;
}

}  // namespace conclave::cuda
