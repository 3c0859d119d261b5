#include "backends/cpu/tile_rows.h"

#include <algorithm>

#include "ops/host_access.h"

namespace conclave {

TileRows::Scratch::Scratch(std::int64_t k, const CpuKernels& kernels)
    : rows(layout.add<ProductRow>(kMaxRows)),
      from(layout.add<std::int64_t>(kMaxRows)),
      x(layout.add<float>(k)),
      w(layout.add<float>(k)),
      packed(layout.add((kMaxRows + 15) / 16, packed_bytes(k, kernels))) {}

void TileRows::ready(const std::byte* packed) {
  const StripKernels* strips = kernels_.product.strips;
  if (strips == nullptr || n_ < strips->from_rows || !bank_.has_integers()) return;
  in_strips_ = true;
  if (strips->pack == nullptr) return;
  if (packed == nullptr) pack_into(own_packed_, 0, n_, 0, bank_.k() / kChunk);
  packed_ = packed == nullptr ? own_packed_ : packed;
}

TileRows::Ahead TileRows::ahead(const Tensor& w, std::int64_t first, std::int64_t end) {
  if (end <= first || w.stride(0) != row_bytes(w)) return {};
  return {.at = row_address(w, {first}), .bytes = (end - first) * w.stride(0)};
}

std::int64_t TileRows::columns_at_once(DType type) const {
  return strip_kernel(type) == nullptr ? kTileColumns : kernels_.product.strips->tiles * kTileColumns;
}

void TileRows::multiply(const Tensor& w, std::int64_t first, std::int64_t count, Ahead next, float* out) const {
  const StripKernel strip = strip_kernel(w.dtype);
  const TileKernel tile = kernels_.product.tile[static_cast<std::size_t>(w.dtype)];
  const std::int64_t width = columns_at_once(w.dtype);
  for (std::int64_t n = 0; n < count; n += width) {
    const std::int64_t end = std::min(n + width, count);
    const Ahead then = end < count ? ahead(w, first + end, first + std::min(end + width, count)) : next;
    float* const to = out + n / kTileColumns * tile_stride();
    if (strip != nullptr) {
      strip({.weights = row_address(w, {first + n}),
             .column_stride = w.stride(0),
             .n_columns = end - n,
             .k = w.dim(1),
             .rows = rows_,
             .packed = packed_,
             .n_rows = n_,
             .out = to,
             .next = then.at,
             .next_bytes = then.bytes});
    } else {
      tile({.weights = row_address(w, {first + n}),
            .column_stride = w.stride(0),
            .n_columns = static_cast<int>(end - n),
            .k = w.dim(1),
            .rows = rows_,
            .n_rows = n_,
            .out = to,
            .next = then.at,
            .next_bytes = then.bytes});
    }
  }
  if (n_plain_ > 0 && is_block(w.dtype)) multiply_plainly(w, first, count, out);
}

void TileRows::multiply_plainly(const Tensor& w, std::int64_t first, std::int64_t count, float* out) const {
  const std::int64_t k = w.dim(1);
  for (std::int64_t r = 0; r < n_; ++r) {
    if (!bank_.is_plain(filled_, from_[r])) continue;
    bank_.load(from_[r], kernels_, x_);
    for (std::int64_t n = 0; n < count; ++n) {
      decode(w.dtype, {row_address(w, {first + n}), static_cast<std::size_t>(row_bytes(w))},
             {w_, static_cast<std::size_t>(k)});
      double sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += static_cast<double>(x_[i]) * static_cast<double>(w_[i]);
      out[n / kTileColumns * tile_stride() + kTileColumns * r + n % kTileColumns] = static_cast<float>(sum);
    }
  }
}

}  // namespace conclave
