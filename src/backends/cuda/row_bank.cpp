#include "backends/cuda/row_bank.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"

namespace conclave::cuda {

OpBank::OpBank(const Tensor& x, Quantised quantised, ScratchLayout& scratch, const BankOut& made)
    : quantised_(quantised), made_(made) {
  bank_.x = view_of(x);
  bank_.n_rows = row_count(x);
  bank_.k = x.inner();
  bank_.chunks = chunks_of(x.inner());
  const bool fills = quantised == Quantised::before && made.q == nullptr;
  const std::int64_t room = fills ? ceil_div(bank_.n_rows, kBankRows) * kBankRows : 0;
  q_at_ = scratch.add(room, bank_.chunks * kChunk);
  scale_at_ = scratch.add(room, bank_.chunks * 4);
  sums_at_ = scratch.add(room, bank_.chunks * 32);
}

RowBank OpBank::at(std::byte* scratch) const {
  RowBank bank = bank_;
  if (quantised_ != Quantised::before) return bank;
  const bool made = made_.q != nullptr;
  bank.q = made ? made_.q : scratch_at<std::int8_t>(scratch, q_at_);
  bank.scale = made ? made_.scale : scratch_at<float>(scratch, scale_at_);
  bank.sums = made ? made_.sums : scratch_at<std::uint16_t>(scratch, sums_at_);
  return bank;
}

void OpBank::fill(std::byte* scratch, const Stream& stream, std::string_view op) const {
  if (quantised_ == Quantised::before && made_.q == nullptr) check(launch_fill_bank(at(scratch), stream), op);
}

}  // namespace conclave::cuda
