// Rows that lie one after another, as Hopper's copy engine takes them: boxes of kBoxRows rows and 64 of k, which come
// to lie in shared memory as wgmma.cuh wants rows.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace conclave::cuda {

inline constexpr int kBoxRows = 16;

struct RowBoxes {
  CUtensorMap map;
  bool given = false;
};
// Of a bank of `rows` rows of k elements, `stride` from row to row. Not given where the driver has no such thing.
RowBoxes row_boxes(const std::uint16_t* bank, std::int64_t rows, std::int64_t k, std::int64_t stride);

}  // namespace conclave::cuda
