// Tiles side by side have the bits of tiles one by one: any number of columns, any number of rows, every format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "backends/cpu/kernels.h"
#include "support/rng.h"
#include "tensor/dtype.h"

namespace conclave::test {
namespace {

constexpr std::int64_t kInner = 3 * kChunk;
constexpr std::int64_t kMostRows = 40;

// Rows of random numbers as a kernel row quantises them.
class QuantisedRows {
 public:
  QuantisedRows(const ProductKernels& kernels, Rng& rng) {
    for (std::int64_t r = 0; r < kMostRows; ++r) {
      std::vector<float> x(kInner);
      for (float& value : x) value = static_cast<float>(rng.normal());
      auto& row = rows_.emplace_back(std::make_unique<Row>());
      EXPECT_TRUE(kernels.quantize(x.data(), kInner, row->q, row->scale, row->sum16, row->sum32));
      views_.push_back({.x = nullptr, .q = row->q, .scale = row->scale, .sum16 = row->sum16, .sum32 = row->sum32});
    }
  }
  const ProductRow* data() const { return views_.data(); }

 private:
  struct Row {
    std::int8_t q[kInner];
    float scale[kInner / kChunk];
    std::int16_t sum16[kInner / 16];
    std::int16_t sum32[kInner / 32];
  };
  std::vector<std::unique_ptr<Row>> rows_;
  std::vector<ProductRow> views_;
};

void expect_strips_as_tiles(const ProductKernels& kernels, DType type, const ProductRow* rows, Rng& rng) {
  const std::int64_t most_columns = kernels.strips->tiles * kTileColumns;
  const std::int64_t stride = kInner / dtype_info(type).per_block * dtype_info(type).bytes;
  // No factor is NaN or infinite: the upper byte of an f16 with its exponent's highest bit set is no byte below 64.
  std::vector<std::byte> weights(static_cast<std::size_t>(most_columns * stride));
  for (std::byte& byte : weights) byte = static_cast<std::byte>(rng.integer(0, 63));
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
    const QuantisedRows rows(kernels, rng);
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
