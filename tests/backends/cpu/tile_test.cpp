// A tile's products are the same bits on every instruction set, for any number of rows and columns: kernels of their own
// take few rows, and others where columns are long.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/quantised_rows.h"
#include "tensor/dtype.h"

namespace conclave::test {
namespace {

constexpr std::int64_t kMostRowsOfATile = 10;

const ProductKernels& generic_kernels() {
  const auto rows = cpu_rows();
  return std::find_if(rows.begin(), rows.end(), [](const CpuRow& row) { return row.kernels->name == "generic"; })
      ->kernels->product;
}

void expect_tiles_of_generic(const ProductKernels& kernels, DType type, std::int64_t k) {
  Rng rng(13);
  const QuantisedRows rows(generic_kernels(), kMostRowsOfATile, k, rng);
  const std::int64_t column = k / dtype_info(type).per_block * dtype_info(type).bytes;
  for (const std::int64_t stride : {column, column + 64}) {
    const std::vector<std::byte> weights = finite_blocks(kTileColumns * stride, rng);
    for (const int n_columns : {16, 15, 12, 5, 1}) {
      for (std::int64_t n_rows = 1; n_rows <= kMostRowsOfATile; ++n_rows) {
        const auto results = [&](const ProductKernels& of) {
          std::vector<float> out(static_cast<std::size_t>(kMostRowsOfATile * kTileColumns));
          of.tile[static_cast<std::size_t>(type)]({.weights = weights.data(),
                                                   .column_stride = stride,
                                                   .n_columns = n_columns,
                                                   .k = k,
                                                   .rows = rows.data(),
                                                   .n_rows = n_rows,
                                                   .out = out.data(),
                                                   .next = weights.data(),
                                                   .next_bytes = stride});
          return out;
        };
        const std::vector<float> want = results(generic_kernels());
        const std::vector<float> got = results(kernels);
        for (std::int64_t r = 0; r < n_rows; ++r) {
          ASSERT_EQ(0, std::memcmp(got.data() + r * kTileColumns, want.data() + r * kTileColumns,
                                   static_cast<std::size_t>(n_columns) * sizeof(float)))
              << fmt::format("{}: k {}, row {} of {}, {} columns {} bytes apart", dtype_info(type).name, k, r, n_rows,
                             n_columns, stride);
        }
      }
    }
  }
}

TEST(Tiles, HaveTheBitsOfTheGenericRow) {
  for (const CpuRow& row : cpu_rows()) {
    if (!row.runs_here()) continue;
    for (const DType type : all_dtypes()) {
      if (is_integer(type) || !is_block(type)) continue;
      SCOPED_TRACE(row.kernels->name);
      for (const std::int64_t k : {256, 768, 1024, 2048, 2304}) {
        ASSERT_NO_FATAL_FAILURE(expect_tiles_of_generic(row.kernels->product, type, k));
      }
    }
  }
}

}  // namespace
}  // namespace conclave::test
