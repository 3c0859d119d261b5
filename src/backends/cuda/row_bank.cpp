#include "backends/cuda/row_bank.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"

namespace conclave::cuda {

OpBank::OpBank(const Tensor& x, Quantised quantised, ScratchLayout& scratch) : quantised_(quantised) {
  bank_.x = view_of(x);
  bank_.n_rows = row_count(x);
  bank_.k = x.inner();
  bank_.chunks = chunks_of(x.inner());
  const std::int64_t room = quantised == Quantised::before ? ceil_div(bank_.n_rows, kBankRows) * kBankRows : 0;
  q_at_ = scratch.add(room, bank_.chunks * kChunk);
  scale_at_ = scratch.add(room, bank_.chunks * 4);
  sums_at_ = scratch.add(room, bank_.chunks * 32);
}

RowBank OpBank::at(std::byte* scratch) const {
  RowBank bank = bank_;
  if (quantised_ != Quantised::before) return bank;
  bank.q = scratch_at<std::int8_t>(scratch, q_at_);
  bank.scale = scratch_at<float>(scratch, scale_at_);
  bank.sums = scratch_at<std::uint16_t>(scratch, sums_at_);
  return bank;
}

void OpBank::fill(std::byte* scratch, const Stream& stream, std::string_view op) const {
  if (quantised_ == Quantised::before) check(launch_fill_bank(at(scratch), stream), op);
}

}  // namespace conclave::cuda
