// Operands for tests of product kernels by themselves.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "backends/cpu/kernels.h"
#include "support/rng.h"

namespace conclave::test {

// Rows of random numbers as a kernel row quantises them.
class QuantisedRows {
 public:
  QuantisedRows(const ProductKernels& kernels, std::int64_t n_rows, std::int64_t k, Rng& rng) {
    for (std::int64_t r = 0; r < n_rows; ++r) {
      std::vector<float> x(static_cast<std::size_t>(k));
      for (float& value : x) value = static_cast<float>(rng.normal());
      Row& row = *rows_.emplace_back(std::make_unique<Row>(k));
      EXPECT_TRUE(kernels.quantize(x.data(), k, row.q.data(), row.scale.data(), row.sum16.data(), row.sum32.data()));
      views_.push_back({.x = nullptr,
                        .q = row.q.data(),
                        .scale = row.scale.data(),
                        .sum16 = row.sum16.data(),
                        .sum32 = row.sum32.data()});
    }
  }
  const ProductRow* data() const { return views_.data(); }

 private:
  struct Row {
    explicit Row(std::int64_t k)
        : q(static_cast<std::size_t>(k)),
          scale(static_cast<std::size_t>(k / kChunk)),
          sum16(static_cast<std::size_t>(k / 16)),
          sum32(static_cast<std::size_t>(k / 32)) {}
    std::vector<std::int8_t> q;
    std::vector<float> scale;
    std::vector<std::int16_t> sum16;
    std::vector<std::int16_t> sum32;
  };
  std::vector<std::unique_ptr<Row>> rows_;
  std::vector<ProductRow> views_;
};

// Blocks of any format, none of whose factors is NaN or infinite: the upper byte of an f16 with its exponent's highest
// bit set is no byte below 64.
inline std::vector<std::byte> finite_blocks(std::int64_t bytes, Rng& rng) {
  std::vector<std::byte> blocks(static_cast<std::size_t>(bytes));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(rng.integer(0, 63));
  return blocks;
}

}  // namespace conclave::test
