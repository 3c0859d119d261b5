// Weights of prefill_rows as boxes of Hopper's copy engine.
//
// Those of short tiles come from memory, which likes to be asked for more than a superblock of a column: a box is two
// superblocks of a warpgroup's columns, or one of experts' `down`, whose columns are mostly three. A warpgroup has its
// own ring of boxes, in as much memory as the superblocks have that are copied otherwise.
#pragma once

#include "backends/cuda/prefill_rows_plan.h"

namespace conclave::cuda {

// Of 32 places in a row, from a multiple of 32 on, the elements are four neighbours of each 32: eight runs.
inline constexpr int kBankRun = 32;
inline constexpr int kBankRuns = kChunk / kBankRun;
constexpr int bank_run_place(int place) {  // of 32 places: run and neighbour
  return (place % 8 / 2 * 2 + place / 16) * 4 + place % 2 * 2 + place % 16 / 8;
}
constexpr bool bank_has_runs() {
  for (int i = 0; i < kChunk; ++i) {
    const int at = bank_run_place(i % 32);
    if (bank_element(i) != at / 4 * kBankRun + i / 32 * 4 + at % 4) return false;
  }
  return true;
}
static_assert(bank_has_runs());
constexpr bool prefill_boxes_fit(DType type, int room) {
  return room == kPrefillShortRows && type == DType::q4_k;
}
// Superblocks that come together. Experts' `down` has no `up` and has lists.
constexpr int prefill_span(bool gate_up, bool lists) {
  return gate_up || !lists ? 2 : 1;
}
inline constexpr int kPrefillGroupColumns = 64;
constexpr int prefill_box_column(DType type, int span) {
  return span * block_bytes(type);
}
constexpr int prefill_box_bytes(DType type, int span) {
  return kPrefillGroupColumns * prefill_box_column(type, span);
}
constexpr int prefill_box_stages(DType type, int room, int span) {
  return prefill_weight_stages(type, room) / span;
}
// A stage of boxes is as large as those of as many superblocks.
static_assert(prefill_groups(kPrefillShortRows) * prefill_box_bytes(DType::q4_k, 2) ==
              2 * prefill_weight_bytes(DType::q4_k, kPrefillShortRows));
constexpr int prefill_weight_barriers(DType type, int room) {
  const int boxed = prefill_boxes_fit(type, room) ? prefill_groups(room) * prefill_box_stages(type, room, 1) : 0;
  return boxed > prefill_weight_stages(type, room) ? boxed : prefill_weight_stages(type, room);
}
// One warp has the boxes copied: more gather rows.
constexpr int prefill_gathering(int room, bool row_boxes, bool weight_boxes) {
  return weight_boxes && !row_boxes ? kPrefillHelpers - 1 : prefill_gathering(room, row_boxes);
}

}  // namespace conclave::cuda
