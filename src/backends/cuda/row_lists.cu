#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_lists.cuh"
#include "backends/cuda/row_table.h"

namespace conclave::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocks = 1024;

__global__ void __launch_bounds__(kThreads) clear_owners(std::int32_t* owner, std::int64_t n) {
  begin();
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) owner[i] = -1;
}

// A maximum of integers: the same whatever the order.
__global__ void __launch_bounds__(kThreads) claim_owners(RowLists lists) {
  begin();
  for (std::int64_t list = blockIdx.x; list < lists.n_lists; list += gridDim.x) {
    const std::int64_t end = end_of(lists, list);
    for (std::int64_t i = begin_of(lists, list) + threadIdx.x; i < end; i += kThreads) {
      const RowSlot slot = named_slot(lists, list, i);
      if (slot.to >= 0) atomicMax(lists.owner + slot.to, static_cast<std::int32_t>(list));
    }
  }
}

// Slots stand where the lists have them: packed rows one after another, listed ones a row of `ids` apart.
__global__ void __launch_bounds__(kThreads) write_table(RowLists lists, RowTableSpace space, std::int64_t n) {
  begin();
  const std::int64_t apart = lists.form == RowForm::listed ? lists.ids.dims[1] : 0;
  for (std::int64_t list = blockIdx.x; list < lists.n_lists; list += gridDim.x) {
    const std::int64_t first = begin_of(lists, list);
    const std::int64_t end = end_of(lists, list);
    const std::int64_t shift = list * apart;
    for (std::int64_t i = first + threadIdx.x; i < end; i += kThreads) {
      const RowSlot slot = named_slot(lists, list, i);
      if (slot.to < 0 || lists.owner[slot.to] != list) continue;
      space.from[i + shift] = static_cast<std::int32_t>(slot.from);
      space.to[i + shift] = static_cast<std::int32_t>(slot.to);
      space.list[i + shift] = static_cast<std::int32_t>(list);
    }
    if (threadIdx.x == 0) {
      space.begin[list] = static_cast<std::int32_t>(first + shift);
      space.end[list] = static_cast<std::int32_t>((end < first ? first : end) + shift);
      space.expert[list] = static_cast<std::int32_t>(expert_of(lists, list));
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) *space.columns = static_cast<std::int32_t>(columns_of(lists, n));
}

}  // namespace

int launch_row_table(const RowLists& lists, const RowTableSpace& space, std::int64_t n, const Stream& stream) {
  const auto blocks = [](std::int64_t count) { return count < kBlocks ? count : kBlocks; };
  // The owners of output rows and the lists of slots lie side by side.
  const std::int64_t n_marks = space.list + space.n_slots - lists.owner;
  cudaError_t error = launch(clear_owners, {.blocks = blocks(ceil_div(n_marks, kThreads)), .threads = kThreads}, stream,
                             lists.owner, n_marks);
  if (error != cudaSuccess) return error;
  error = launch(claim_owners, {.blocks = blocks(lists.n_lists), .threads = kThreads}, stream, lists);
  if (error != cudaSuccess) return error;
  return launch(write_table, {.blocks = blocks(lists.n_lists), .threads = kThreads}, stream, lists, space, n);
}

}  // namespace conclave::cuda
