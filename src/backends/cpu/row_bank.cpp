#include "backends/cpu/row_bank.h"

#include <algorithm>

#include "ops/rows.h"

namespace conclave {

RowBank::RowBank(const Tensor& x, std::span<const DType> weights) : x_rows_(x), n_rows_(row_count(x)), k_(x.inner()) {
  for (const DType type : weights) (is_block(type) ? integers_ : floats_) = true;
  ScratchLayout row;
  if (integers_) {
    q_ = row.add<std::int8_t>(chunks() * kChunk);
    scale_ = row.add<float>(chunks());
    sum16_ = row.add<std::int16_t>(chunks() * 16);
    sum32_ = row.add<std::int16_t>(chunks() * 8);
    plain_ = row.add<std::int8_t>(chunks());
  }
  if (floats_) x_ = row.add<float>(k_);
  stride_ = row.bytes();
  ScratchLayout all;
  all.add(n_rows_, stride_);  // refuses a size that does not fit
}

std::int64_t RowBank::bytes() const {
  return n_rows_ * stride_;
}

void RowBank::load_part(std::int64_t r, std::int64_t first, std::int64_t end, const CpuKernels& kernels,
                        float* to) const {
  const Tensor row = flat_row(x_rows_, r);
  kernels.row.load(row.dtype, row.buffer->host() + row.byte_offset + first * row.stride(row.rank - 1), to, end - first);
}

void RowBank::fill_part(std::byte* bank, std::int64_t r, std::int64_t first, std::int64_t end,
                        const CpuKernels& kernels, float* scratch) const {
  std::byte* row = bank + r * stride_;
  const float* x;
  if (x_rows_.dtype == DType::f32 && !floats_) {
    const Tensor from = flat_row(x_rows_, r);
    x = reinterpret_cast<const float*>(from.buffer->host() + from.byte_offset) + first;
  } else {
    float* loaded = (floats_ ? scratch_at<float>(row, x_) : scratch) + first;
    load_part(r, first, end, kernels, loaded);
    x = loaded;
  }
  if (!integers_) return;
  const std::int64_t chunk = first / kChunk;
  const bool usable = kernels.product.quantize(
      x, end - first, scratch_at<std::int8_t>(row, q_) + first, scratch_at<float>(row, scale_) + chunk,
      scratch_at<std::int16_t>(row, sum16_) + chunk * 16, scratch_at<std::int16_t>(row, sum32_) + chunk * 8);
  for (std::int64_t c = chunk; c * kChunk < end; ++c) set_usable(bank, r, c, usable);
}

// Threads that make parts of a row share this line: it is written where that changes something.
void RowBank::set_usable(std::byte* bank, std::int64_t r, std::int64_t chunk, bool usable) const {
  auto* plain = scratch_at<std::int8_t>(bank + r * stride_, plain_) + chunk;
  const auto value = static_cast<std::int8_t>(usable ? 0 : 1);
  if (*plain != value) *plain = value;
}

ProductRow RowBank::row(const std::byte* bank, std::int64_t r) const {
  const std::byte* row = bank + r * stride_;
  return {.x = reinterpret_cast<const float*>(row + x_),
          .q = reinterpret_cast<const std::int8_t*>(row + q_),
          .scale = reinterpret_cast<const float*>(row + scale_),
          .sum16 = reinterpret_cast<const std::int16_t*>(row + sum16_),
          .sum32 = reinterpret_cast<const std::int16_t*>(row + sum32_)};
}

bool RowBank::is_plain(const std::byte* bank, std::int64_t r) const {
  if (!integers_) return false;
  const auto* plain = reinterpret_cast<const std::int8_t*>(bank + r * stride_ + plain_);
  return std::any_of(plain, plain + chunks(), [](std::int8_t chunk) { return chunk != 0; });
}

}  // namespace conclave
