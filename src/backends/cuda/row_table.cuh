// RowTable inside kernels.
#pragma once

#include "backends/cuda/element.cuh"
#include "backends/cuda/row_table.h"

namespace conclave::cuda {

struct RowRange {
  int begin;
  int end;  // not above begin where the list is empty
};

__device__ __forceinline__ RowRange range_of(const RowTable& t, int list) {
  if (t.begin == nullptr) return {0, static_cast<int>(live_rows(t.live, t.n_rows))};
  const int begin = t.begin[list];
  const int end = t.end[list];
  return {begin < 0 ? 0 : begin, end > t.n_slots ? t.n_slots : end};
}

// -1 where the list is of no expert.
__device__ __forceinline__ int expert_of(const RowTable& t, int list) {
  if (t.expert == nullptr) return list;
  const int e = t.expert[list];
  return e < t.n_experts ? e : -1;
}

struct TableSlot {
  int from;  // -1: nothing
  int to;
};
__device__ __forceinline__ TableSlot slot_of(const RowTable& t, int list, int i) {
  TableSlot slot{i, i};
  if (t.list != nullptr && t.list[i] != list) return {-1, -1};
  if (t.from != nullptr) {
    const int named = t.from[i];
    slot.from = named < 0 ? -1 : named / t.from_step;
  }
  if (t.to != nullptr) slot.to = t.to[i];
  if (slot.from >= t.n_from || slot.to < 0) slot.from = -1;
  return slot;
}

__device__ __forceinline__ int columns_of(const RowTable& t, int all) {
  if (t.columns == nullptr) return all;
  const int some = *t.columns;
  return some < all ? some : all;
}

}  // namespace conclave::cuda
