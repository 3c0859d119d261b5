// few_rows for experts on Hopper: weights come as boxes, some superblocks of 16 columns at a time (of gate and up, of 8 of
// each), by the copy engine. A superblock is shorter than what memory likes to be asked for at once, and a warp that
// copies columns word by word asks for a superblock of each: 2.9 TB/s, where boxes of two superblocks make 4.1. And the
// engine takes none of the warp's instructions.
//
//   a span of 2   q4_k: a warp has two boxes, one of them on its way
//   a span of 3   q4_k, q6_k: whole columns of so many superblocks, a box at a time. Columns of q6_k are cut in two: places
//                 of 640 bytes would all begin in the same bank
#pragma once

#include <cuda.h>

#include "backends/cuda/few_rows_plan.h"
#include "backends/cuda/weight_planes.h"

namespace conclave::cuda {

inline constexpr int kWholeSpan = 3;
// Boxes of a warp, and superblocks of rows that are staged at once.
constexpr int box_slots(int span) {
  return span == kWholeSpan ? 1 : 2;
}
constexpr int box_segment(int span) {
  return span == kWholeSpan ? 4 : kMaxSegment;
}
// Bytes of a column in a box; of q6_k, in the first of its two, and in the second.
constexpr int box_column(DType type, int span) {
  return type == DType::q4_k ? span * block_bytes(type) : 128 * span + 16;
}
constexpr int box_rest(DType type, int span) {
  return type == DType::q4_k ? 0 : static_cast<int>(PlanesQ6K{span}.row_bytes()) - box_column(type, span);
}
static_assert(box_column(DType::q4_k, 2) / 8 % 16 == 4 && box_column(DType::q4_k, kWholeSpan) % 32 == 16 &&
                  box_column(DType::q6_k, kWholeSpan) % 32 == 16 && box_rest(DType::q6_k, kWholeSpan) % 32 == 16,
              "columns in different banks");
constexpr int box_bytes(DType type, int span) {
  return kTile * (box_column(type, span) + box_rest(type, span));
}
static_assert(box_bytes(DType::q4_k, 2) / 2 % 128 == 0 && box_bytes(DType::q4_k, kWholeSpan) % 128 == 0 &&
                  box_bytes(DType::q6_k, kWholeSpan) % 128 == 0 && kTile * box_rest(DType::q6_k, kWholeSpan) % 128 == 0,
              "where boxes may begin");
constexpr int box_ring_bytes(DType type, int span) {
  return box_slots(span) * box_bytes(type, span);
}
constexpr std::int64_t few_boxes_shared(DType type, int span) {
  return kFewWarps * box_ring_bytes(type, span) + few_rows_bytes(box_segment(span), false);
}
inline constexpr std::int64_t kBoxStatic = 1792;  // and less than this beside it
static_assert(2 * (few_boxes_shared(DType::q4_k, 2) + kBoxStatic + 1024) <= 227 * 1024 &&
                  2 * (few_boxes_shared(DType::q6_k, kWholeSpan) + kBoxStatic + 1024) <= 227 * 1024,
              "two blocks on a multiprocessor");

// Whether these kernels can take weights of such columns, as units_fit() has them.
constexpr bool boxes_fit(DType type, std::int64_t chunks, bool gate_up) {
  return (type == DType::q4_k && chunks > 1) || (type == DType::q6_k && !gate_up && chunks == kWholeSpan);
}

// Rows of a pass. Short ones, two of which are staged together, where longer lists are few: a block that has one beside
// another stops to stage it, and all others wait for that block in the end. Where they are many, their weights are not
// worth reading twice.
constexpr int box_rows(std::int64_t n_rows, std::int64_t n_lists) {
  constexpr std::int64_t kShortMean = 5;
  return n_rows <= kShortMean * n_lists ? kRowTile : few_rows_at_once(false);
}
static_assert(box_rows(64 * 8, 128) == 8 && box_rows(128 * 8, 128) == 16);

// Weights of all experts: gate and up, or columns and, of q6_k, the rest of them.
struct FewBoxes {
  CUtensorMap map[2];
  int span = 0;  // of these maps; 0: there are none
};
// None where these kernels cannot take such weights, or the driver knows no such thing.
FewBoxes few_boxes(const UnitArgs& args);
int launch_few_boxes(const UnitArgs& args, const FewBoxes& boxes, const Stream& stream);
// That, where there are tiles enough for each warp to have its own, on Hopper; else launch_few_rows().
int launch_few(const UnitArgs& args, std::int64_t max_active, bool hopper, const Stream& stream);

}  // namespace conclave::cuda
