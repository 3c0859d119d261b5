// Rows of activations made ready for products, once, however many weights they meet. Host code alone.
#pragma once

#include "backends/cuda/product_plan.h"
#include "backends/cuda/row_plan.h"
#include "ops/scratch.h"
#include "tensor/tensor.h"

namespace conclave::cuda {

// What products make of rows.
enum class BankForm {
  as_given,       // all weights are plain
  int8,           // by a pass of its own before the products
  int8_by_block,  // by each block of the product for the rows it needs, which saves the pass where rows are few
  bf16,           // prefill: by a pass of its own, in the order of prefill_rows_plan.h
  plain_f16,      // prefill with weights of 16 bits: likewise, as they stand (half_prefill_plan.h)
  plain_bf16,
};
// Of products that prefill takes.
BankForm prefill_form(DType weights);

class OpBank {
 public:
  // All innermost rows of x (rank 2 or 3). `made`: where they have that form before the op begins.
  OpBank(const Tensor& x, BankForm form, ScratchLayout& scratch, const BankOut& made = {});

  RowBank at(std::byte* scratch) const;
  void fill(std::byte* scratch, const Stream& stream, std::string_view op) const;

  // Whether fill() makes int8 rows; and another launch before the op makes them, as at() says.
  bool makes_int8() const { return form_ == BankForm::int8 && !made_.given() && !left_; }
  void leave() { left_ = true; }

 private:
  RowBank bank_;
  BankForm form_;
  BankOut made_;
  bool left_ = false;
  std::int64_t q_at_ = 0;
  std::int64_t scale_at_ = 0;
  std::int64_t sums_at_ = 0;
};

}  // namespace conclave::cuda
