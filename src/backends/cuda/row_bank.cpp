#include "backends/cuda/row_bank.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/half_prefill_plan.h"

namespace conclave::cuda {
namespace {

bool is_plain(BankForm form) {
  return form == BankForm::plain_f16 || form == BankForm::plain_bf16;
}

}  // namespace

BankForm prefill_form(DType weights) {
  if (!is_plain_half(weights)) return BankForm::bf16;
  return weights == DType::f16 ? BankForm::plain_f16 : BankForm::plain_bf16;
}

OpBank::OpBank(const Tensor& x, BankForm form, ScratchLayout& scratch, const BankOut& made) : form_(form), made_(made) {
  bank_.x = view_of(x);
  bank_.n_rows = row_count(x);
  bank_.k = x.inner();
  bank_.chunks = chunks_of(x.inner());
  const std::int64_t rows = made.given() ? 0 : ceil_div(bank_.n_rows, kBankRows) * kBankRows;
  if (form == BankForm::bf16 || is_plain(form)) {
    bank_.bf16_stride = prefill_bank_stride(bank_.k);
    q_at_ = scratch.add(rows, bank_.bf16_stride * 2);
    if (form == BankForm::plain_f16) scale_at_ = scratch.add(rows, 4);
    return;
  }
  const std::int64_t room = form == BankForm::int8 ? rows : 0;
  q_at_ = scratch.add(room, bank_.chunks * kChunk);
  scale_at_ = scratch.add(room, bank_.chunks * 4);
  sums_at_ = scratch.add(room, bank_.chunks * 32);
}

RowBank OpBank::at(std::byte* scratch) const {
  RowBank bank = bank_;
  if (form_ == BankForm::bf16 || is_plain(form_)) {
    if (form_ == BankForm::plain_f16) bank.scale = scratch_at<float>(scratch, scale_at_);
    bank.bf16 = made_.given() ? made_.bf16 : scratch_at<std::uint16_t>(scratch, q_at_);
    if (made_.given()) bank.bf16_stride = made_.bf16_stride;
    return bank;
  }
  if (form_ != BankForm::int8) return bank;
  const bool made = made_.given();
  bank.q = made ? made_.q : scratch_at<std::int8_t>(scratch, q_at_);
  bank.scale = made ? made_.scale : scratch_at<float>(scratch, scale_at_);
  bank.sums = made ? made_.sums : scratch_at<std::uint16_t>(scratch, sums_at_);
  return bank;
}

void OpBank::fill(std::byte* scratch, const Stream& stream, std::string_view op) const {
  if (made_.given() || left_) return;
  if (form_ == BankForm::int8) check(launch_fill_bank(at(scratch), stream), op);
  if (form_ == BankForm::bf16) {
    const RowBank bank = at(scratch);
    check(launch_fill_prefill_bank({.x = bank.x, .bank = bank.bf16, .stride = bank.bf16_stride}, stream), op);
  }
  if (is_plain(form_)) {
    const RowBank bank = at(scratch);
    check(launch_fill_half_bank({.x = bank.x,
                                 .bank = bank.bf16,
                                 .stride = bank.bf16_stride,
                                 .factors = bank.scale,
                                 .type = form_ == BankForm::plain_f16 ? DType::f16 : DType::bf16},
                                stream),
          op);
  }
}

}  // namespace conclave::cuda
