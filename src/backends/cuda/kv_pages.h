// The page table of a cache, for kernels. Host code alone.
#pragma once

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/kv_view_plan.h"
#include "ops/kv_view.h"

namespace conclave::cuda {

inline KvPages pages_of(const KvView& kv) {
  return {.pages = view_of(kv.pages), .n_pages = kv.k.dim(0), .page_size = device_page_size(kv.page_size())};
}

}  // namespace conclave::cuda
