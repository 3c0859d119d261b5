// RowTable: which rows of activations meet which weights, as product kernels take it.
//
// A list is a run of slots for one expert: slots begin[l] .. end[l] - 1. A slot names a row of x and a row of the output.
// Where a member is null, the obvious holds: list l is of expert l, slot i is row i. Nothing in these tensors is trusted.
//
// moe_gate_up and moe_down are tables as they stand. The forms of moe_matmul, and offsets that are not known to be
// moe_group's, go through a pass that writes tables (launch_row_table): there the last list that names an output row wins.
#pragma once

#include "backends/cuda/row_lists_plan.h"

namespace conclave::cuda {

struct RowTable {
  const std::int32_t* begin = nullptr;  // [n_lists]; null: one list of all rows, or of `live` of them
  const std::int32_t* end = nullptr;
  const std::int32_t* live = nullptr;
  const std::int32_t* expert = nullptr;   // [n_lists]
  const std::int32_t* from = nullptr;     // [slots]: rows of x times from_step; others name nothing
  const std::int32_t* to = nullptr;       // [slots]: rows of the output; negative: nothing
  const std::int32_t* list = nullptr;     // [slots]: the list that a slot is of; in other lists it names nothing
  const std::int32_t* columns = nullptr;  // how many columns are computed; null: all
  std::int32_t from_step = 1;
  std::int32_t n_lists = 1;
  std::int32_t n_experts = 1;
  std::int32_t n_slots = 0;
  std::int32_t n_from = 0;  // rows of x
  std::int32_t n_rows = 0;  // rows of the output
};

// What launch_row_table() fills.
struct RowTableSpace {
  std::int32_t* begin;
  std::int32_t* end;
  std::int32_t* expert;
  std::int32_t* from;
  std::int32_t* to;
  std::int32_t* list;  // behind lists.owner
  std::int64_t n_slots;
  std::int32_t* columns;
};
// `lists.owner` is used on the way. `n`: columns of the weights.
int launch_row_table(const RowLists& lists, const RowTableSpace& space, std::int64_t n, const Stream& stream);

}  // namespace conclave::cuda
