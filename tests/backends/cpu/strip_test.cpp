// Tiles side by side have the bits of tiles one by one: any number of columns, any number of rows, every format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/quantised_rows.h"
#include "tensor/dtype.h"

namespace conclave::test {
namespace {

constexpr std::int64_t kInner = 3 * kChunk;
constexpr std::int64_t kMostRows = 40;

void expect_strips_as_tiles(const ProductKernels& kernels, DType type, const ProductRow* rows, Rng& rng) {
  const std::int64_t most_columns = kernels.strips->tiles * kTileColumns;
  const std::int64_t stride = kInner / dtype_info(type).per_block * dtype_info(type).bytes;
  const std::vector<std::byte> weights = finite_blocks(most_columns * stride, rng);
  std::vector<float> tile(static_cast<std::size_t>(kMostRows * kTileColumns));
  std::vector<float> strip(static_cast<std::size_t>(kernels.strips->tiles * 48 * kTileColumns));
  for (const std::int64_t n_rows : {9, 10, 11, 12, 13, 18, 19, 31, 32, 40}) {
    for (const std::int64_t n_columns :
         {std::int64_t{1}, std::int64_t{16}, std::int64_t{17}, std::int64_t{31}, most_columns}) {
      kernels.strips->strip[static_cast<std::size_t>(type)]({.weights = weights.data(),
                                                             .column_stride = stride,
                                                             .n_columns = n_columns,
                                                             .k = kInner,
                                                             .rows = rows,
                                                             .packed = nullptr,
                                                             .n_rows = n_rows,
                                                             .out = strip.data(),
                                                             .next = weights.data(),
                                                             .next_bytes = stride});
      for (std::int64_t first = 0; first < n_columns; first += kTileColumns) {
        const std::int64_t count = std::min<std::int64_t>(kTileColumns, n_columns - first);
        kernels.tile[static_cast<std::size_t>(type)]({.weights = weights.data() + first * stride,
                                                      .column_stride = stride,
                                                      .n_columns = static_cast<int>(count),
                                                      .k = kInner,
                                                      .rows = rows,
                                                      .n_rows = n_rows,
                                                      .out = tile.data(),
                                                      .next = nullptr,
                                                      .next_bytes = 0});
        const float* of_strip = strip.data() + first / kTileColumns * ((n_rows + 15) / 16 * 16) * kTileColumns;
        for (std::int64_t r = 0; r < n_rows; ++r) {
          ASSERT_EQ(0, std::memcmp(tile.data() + r * kTileColumns, of_strip + r * kTileColumns,
                                   static_cast<std::size_t>(count) * sizeof(float)))
              << fmt::format("{}: row {} of {}, columns from {} of {}", dtype_info(type).name, r, n_rows, first,
                             n_columns);
        }
      }
    }
  }
}

TEST(Strips, HaveTheBitsOfTiles) {
  int checked = 0;
  for (const CpuRow& row : cpu_rows()) {
    const ProductKernels& kernels = row.kernels->product;
    // (Rows that are packed first are checked with every case of the device's tests.)
    if (!row.runs_here() || kernels.strips == nullptr || kernels.strips->pack != nullptr) continue;
    Rng rng(11);
    const QuantisedRows rows(kernels, kMostRows, kInner, rng);
    for (const DType type : all_dtypes()) {
      if (kernels.strips->strip[static_cast<std::size_t>(type)] == nullptr) continue;
      expect_strips_as_tiles(kernels, type, rows.data(), rng);
      ++checked;
    }
  }
  if (checked == 0) GTEST_SKIP() << "no row of this machine multiplies strips of rows as they are";
}

}  // namespace
}  // namespace conclave::test
