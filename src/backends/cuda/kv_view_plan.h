// The page table as kernels see it.
#pragma once

#include <algorithm>

#include "backends/cuda/view.h"

namespace conclave::cuda {

struct KvPages {
  View pages;  // i32 [n_seqs, max_pages]
  std::int64_t n_pages = 0;
  std::uint32_t page_size = 1;
};

// Positions are below 2^31: a page that is longer serves as one of 2^31.
constexpr std::uint32_t device_page_size(std::int64_t page_size) {
  return static_cast<std::uint32_t>(std::min(page_size, std::int64_t{1} << 31));
}
static_assert(device_page_size(64) == 64 && device_page_size(std::int64_t{1} << 40) == 0x80000000U);

}  // namespace conclave::cuda
