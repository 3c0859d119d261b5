// RowLists inside kernels.
#pragma once

#include "backends/cuda/element.cuh"
#include "backends/cuda/row_lists_plan.h"

namespace conclave::cuda {

struct RowSlot {
  std::int64_t from = -1;  // row of x; -1: nothing
  std::int64_t to = -1;    // row of the output
};

__device__ __forceinline__ std::int64_t grid_reach(const View& grid, std::int64_t axis, std::int64_t step) {
  return static_cast<std::int64_t>(static_cast<std::uint32_t>(int_at(grid, axis))) * step;
}

__device__ __forceinline__ std::int64_t at_least_0(std::int64_t x) {
  return x < 0 ? 0 : x;
}
__device__ __forceinline__ std::int64_t smaller(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

// -1 where the list is of no expert.
__device__ __forceinline__ std::int64_t expert_of(const RowLists& l, std::int64_t list) {
  if (l.form != RowForm::blocks) return list;
  const std::int64_t e = int_at(l.block_expert, list);
  return e >= 0 && e < l.n_experts ? e : -1;
}

__device__ __forceinline__ std::int64_t begin_of(const RowLists& l, std::int64_t list) {
  switch (l.form) {
    case RowForm::every:
    case RowForm::listed:
      return 0;
    case RowForm::blocks:
      return list * l.block_size;
    default:
      return at_least_0(int_at(l.offsets, list));
  }
}

// Not above begin_of() where the list is empty.
__device__ __forceinline__ std::int64_t end_of(const RowLists& l, std::int64_t list) {
  switch (l.form) {
    case RowForm::every:
      return live_rows(l.live, l.n_outputs);
    case RowForm::listed: {
      std::int64_t reach = l.ids.dims[1];
      if (l.grid.data != nullptr) {
        if (list >= grid_reach(l.grid, 2, 1)) return 0;
        reach = smaller(reach, grid_reach(l.grid, 0, l.nr1));
      }
      return smaller(int_at(l.tpe, list), reach);
    }
    case RowForm::blocks: {
      if (expert_of(l, list) < 0) return 0;
      const std::int64_t padded = smaller(int_at(l.n_padded, 0), l.sorted_ids.dims[0]);
      return smaller((list + 1) * l.block_size, padded);
    }
    default:
      return smaller(int_at(l.offsets, list + 1), l.n_outputs);
  }
}

// Columns of the output that are computed.
__device__ __forceinline__ std::int64_t columns_of(const RowLists& l, std::int64_t all) {
  return l.grid.data == nullptr ? all : smaller(all, grid_reach(l.grid, 1, l.nr0));
}

__device__ __forceinline__ RowSlot slot_of_pair(const RowLists& l, std::int64_t pair) {
  if (pair < 0 || pair >= l.n_outputs) return {};
  return {l.per_pair ? pair : pair / l.top_k, pair};
}

__device__ __forceinline__ RowSlot named_slot(const RowLists& l, std::int64_t list, std::int64_t i) {
  switch (l.form) {
    case RowForm::every:
    case RowForm::packed:
      return {i, i};
    case RowForm::grouped:
      return slot_of_pair(l, int_at(l.row_pair, i));
    case RowForm::listed:
      return slot_of_pair(l, int_at(l.ids, list, i));
    case RowForm::blocks: {
      const std::int64_t id = int_at(l.sorted_ids, i);
      if (id < 0 || id >= l.n_outputs) return {};
      return slot_of_pair(l, l.packed_ids ? int_at(l.row_pair, id) : id);
    }
    case RowForm::packed_tokens: {
      const std::int64_t pair = int_at(l.row_pair, i);
      if (pair < 0 || pair >= l.n_outputs) return {};
      return {pair / l.top_k, i};
    }
  }
  return {};
}

}  // namespace conclave::cuda
