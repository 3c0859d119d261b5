// Where a position of a sequence lies in the paged cache, as kv_place() of ops/kv_view.h says: nothing is trusted.
#pragma once

#include "backends/cuda/element.cuh"
#include "backends/cuda/kv_view_plan.h"

namespace conclave::cuda {

struct DevicePlace {
  std::int32_t page = -1;  // -1: it is not there
  std::uint32_t slot = 0;
};

// What the page table says, unchecked: the page may be any number. Not from the nearest cache: kernels read it before they
// wait for the one before them (launch.cuh).
__device__ __forceinline__ DevicePlace ask_place(const KvPages& kv, std::int64_t seq, std::int64_t position) {
  if (seq < 0 || seq >= kv.pages.dims[0] || position < 0) return {};
  const auto at = static_cast<std::uint32_t>(position);
  const std::uint32_t nth = at / kv.page_size;
  if (nth >= kv.pages.dims[1]) return {};
  return {__ldcg(&int_at(kv.pages, seq, nth)), at - nth * kv.page_size};
}

__device__ __forceinline__ DevicePlace place_of(const KvPages& kv, std::int64_t seq, std::int64_t position) {
  const DevicePlace place = ask_place(kv, seq, position);
  if (place.page < 0 || place.page >= kv.n_pages) return {};
  return place;
}

}  // namespace conclave::cuda
