// RowBank: rows of activations made ready for products, once, however many weights they meet: quantised for block
// weights, as f32 for plain ones.
#pragma once

#include <span>

#include "backends/cpu/kernels.h"
#include "ops/scratch.h"
#include "tensor/tensor.h"

namespace conclave {

class RowBank {
 public:
  RowBank() = default;
  // All innermost rows of x, in index order, to be multiplied by weights of these types.
  RowBank(const Tensor& x, std::span<const DType> weights);

  std::int64_t n_rows() const { return n_rows_; }
  std::int64_t k() const { return k_; }
  bool has_integers() const { return integers_; }  // whether rows are quantised: there are block weights
  std::int64_t bytes() const;
  std::int64_t row_stride() const { return stride_; }

  // Row r of x as f32.
  void load(std::int64_t r, const CpuKernels& kernels, float* to) const { load_part(r, 0, k_, kernels, to); }
  // Makes row r of the bank; `scratch` has room for k floats.
  void fill(std::byte* bank, std::int64_t r, const CpuKernels& kernels, float* scratch) const {
    fill_part(bank, r, 0, k_, kernels, scratch);
  }
  // The same for columns first .. end - 1, whole chunks but at the row's end. Several threads can make parts of a row.
  void fill_part(std::byte* bank, std::int64_t r, std::int64_t first, std::int64_t end, const CpuKernels& kernels,
                 float* scratch) const;
  ProductRow row(const std::byte* bank, std::int64_t r) const;
  // For who quantises a chunk of row r by himself: whether it can be multiplied in integers.
  void set_usable(std::byte* bank, std::int64_t r, std::int64_t chunk, bool usable) const;
  // Whether products of row r with block weights must be computed in floating point: it has a NaN, an infinity, or
  // values too small for an int8 scale.
  bool is_plain(const std::byte* bank, std::int64_t r) const;

 private:
  std::int64_t chunks() const { return (k_ + kChunk - 1) / kChunk; }
  void load_part(std::int64_t r, std::int64_t first, std::int64_t end, const CpuKernels& kernels, float* to) const;

  Tensor x_rows_;
  std::int64_t n_rows_ = 0;
  std::int64_t k_ = 0;
  bool integers_ = false;
  bool floats_ = false;
  std::int64_t q_ = 0;  // where the parts of a row start
  std::int64_t scale_ = 0;
  std::int64_t sum16_ = 0;
  std::int64_t sum32_ = 0;
  std::int64_t plain_ = 0;  // of each chunk, whether it cannot be multiplied in integers
  std::int64_t x_ = 0;
  std::int64_t stride_ = 0;
};

}  // namespace conclave
