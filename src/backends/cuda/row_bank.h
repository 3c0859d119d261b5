// Rows of activations made ready for products, once, however many weights they meet. Host code alone.
#pragma once

#include "backends/cuda/product_plan.h"
#include "backends/cuda/row_plan.h"
#include "ops/scratch.h"
#include "tensor/tensor.h"

namespace conclave::cuda {

// Who makes rows int8: nobody, since all weights are plain; a pass of its own before the products; or each block of the
// product for the rows it needs, which saves the pass where rows are few.
enum class Quantised { no, before, by_block };

class OpBank {
 public:
  // All innermost rows of x (rank 2 or 3). `made`: where they are int8 before the op begins.
  OpBank(const Tensor& x, Quantised quantised, ScratchLayout& scratch, const BankOut& made = {});

  RowBank at(std::byte* scratch) const;
  void fill(std::byte* scratch, const Stream& stream, std::string_view op) const;

 private:
  RowBank bank_;
  Quantised quantised_;
  BankOut made_;
  std::int64_t q_at_ = 0;
  std::int64_t scale_at_ = 0;
  std::int64_t sums_at_ = 0;
};

}  // namespace conclave::cuda
