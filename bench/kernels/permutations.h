// Lists of indices.
#pragma once

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "support/rng.h"

namespace conclave::bench {

// 0 .. n-1
inline std::vector<std::int32_t> counting(std::int64_t n) {
  std::vector<std::int32_t> list(static_cast<std::size_t>(n));
  std::iota(list.begin(), list.end(), 0);
  return list;
}

// 0 .. n-1 in a random order.
inline std::vector<std::int32_t> shuffled(std::int64_t n, test::Rng& rng) {
  std::vector<std::int32_t> list = counting(n);
  for (std::int64_t i = n - 1; i > 0; --i) {
    std::swap(list[static_cast<std::size_t>(i)], list[static_cast<std::size_t>(rng.integer(0, i))]);
  }
  return list;
}

}  // namespace conclave::bench
