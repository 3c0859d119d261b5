// Which rows of activations meet which weights, as the ops' index tensors say: none of them is trusted.
//
// A list is a run of slots for one expert; a slot names a row of x and a row of the output, or nothing. What the forms
// mean is what the reference says (ops/moe_matmul.cpp, ops/moe_gate_up.cpp, ops/moe_down.cpp). Where lists may name one
// output row twice, the last list that names it wins. Kernels take tables that are made of this (row_table.h).
#pragma once

#include "backends/cuda/view.h"

namespace conclave::cuda {

enum class RowForm : std::int32_t {
  every,          // one list: every live row with the one weight matrix
  grouped,        // moe_matmul's GroupedRows
  listed,         // ListedRows
  blocks,         // BlockRows
  packed,         // moe_down: slot i is row i
  packed_tokens,  // moe_gate_up: slot i is row i, of the token that row_pair[i] names
};

struct RowLists {
  RowForm form = RowForm::every;
  std::int64_t n_lists = 1;
  std::int64_t n_experts = 1;
  std::int64_t n_outputs = 0;  // rows of the output
  std::int64_t top_k = 1;
  bool per_pair = false;  // x has a row for each pair, not for each token
  bool packed_ids = false;
  std::int64_t nr0 = 1;
  std::int64_t nr1 = 1;
  std::int64_t block_size = 1;
  const std::int32_t* live = nullptr;
  View offsets;
  View row_pair;
  View ids;
  View tpe;
  View grid;
  View sorted_ids;
  View block_expert;
  View n_padded;
  std::int32_t* owner = nullptr;  // [n_outputs]
  std::int64_t max_slots = 0;     // of one list, at most
};

}  // namespace conclave::cuda
