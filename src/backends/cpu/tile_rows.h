// TileRows: a few rows of a bank gathered for one weight matrix, and their products with its columns: a tile at a time, or
// a strip of tiles where the kernels gain by it.
#pragma once

#include "backends/cpu/row_bank.h"

namespace conclave {

class TileRows {
 public:
  static constexpr std::int64_t kMaxRows = 128;  // their q of one chunk is 32 KiB: half the L1, or a little of the L2

  // Where a set of rows lives in a thread's own scratch.
  struct Scratch {
    Scratch(std::int64_t k, const CpuKernels& kernels);
    std::int64_t bytes() const { return layout.bytes(); }
    ScratchLayout layout;
    std::int64_t rows;
    std::int64_t from;
    std::int64_t x;
    std::int64_t w;
    std::int64_t packed;
  };

  TileRows(const RowBank& bank, const std::byte* filled, const CpuKernels& kernels, const Scratch& scratch,
           std::byte* local)
      : bank_(bank),
        filled_(filled),
        kernels_(kernels),
        rows_(scratch_at<ProductRow>(local, scratch.rows)),
        from_(scratch_at<std::int64_t>(local, scratch.from)),
        x_(scratch_at<float>(local, scratch.x)),
        w_(scratch_at<float>(local, scratch.w)),
        own_packed_(local + scratch.packed) {}

  void add(std::int64_t row) {
    rows_[n_] = bank_.row(filled_, row);
    n_plain_ += bank_.is_plain(filled_, row) ? 1 : 0;
    from_[n_++] = row;
  }
  // After the last add(). `packed`: these rows as pack_into() wrote them, or null.
  void ready(const std::byte* packed);
  // Bytes that every 16 rows take when they are packed for strips.
  static std::int64_t packed_bytes(std::int64_t k, const CpuKernels& kernels) {
    return kernels.product.strips != nullptr ? k / kChunk * kernels.product.strips->packed_bytes : 0;
  }
  // As the rows from `first` on of a strip that is packed at `to`: chunks first_chunk .. end_chunk - 1 of them.
  void pack_into(std::byte* to, std::int64_t first, std::int64_t strip_rows, std::int64_t first_chunk,
                 std::int64_t end_chunk) const {
    kernels_.product.strips->pack({rows_, n_, first, strip_rows, first_chunk, end_chunk, to});
  }
  std::int64_t size() const { return n_; }
  // How many columns of weights of this type these rows meet at a time: a tile's, or a strip's.
  std::int64_t columns_at_once(DType type) const;
  // Floats from one tile's results to the next.
  std::int64_t tile_stride() const { return (n_ + 15) / 16 * 16 * kTileColumns; }

  // Bytes of weights that will be wanted next.
  struct Ahead {
    const std::byte* at = nullptr;
    std::int64_t bytes = 0;
  };
  // Columns first .. end of w [n, k].
  static Ahead ahead(const Tensor& w, std::int64_t first, std::int64_t end);

  // Every row times columns first .. first + count - 1 of w [n, k]: row r's with column first + n is at
  // out[n / 16 * tile_stride() + r * 16 + n % 16].
  void multiply(const Tensor& w, std::int64_t first, std::int64_t count, Ahead next, float* out) const;

 private:
  StripKernel strip_kernel(DType type) const {
    return in_strips_ ? kernels_.product.strips->strip[static_cast<std::size_t>(type)] : nullptr;
  }
  void multiply_plainly(const Tensor& w, std::int64_t first, std::int64_t count, float* out) const;

  const RowBank& bank_;
  const std::byte* filled_;
  const CpuKernels& kernels_;
  ProductRow* rows_;
  std::int64_t* from_;
  float* x_;  // [k] each, for rows that must be multiplied plainly
  float* w_;
  std::byte* own_packed_;
  bool in_strips_ = false;
  const std::byte* packed_ = nullptr;  // null where strips take rows as they are
  std::int64_t n_ = 0;
  std::int64_t n_plain_ = 0;
};

}  // namespace conclave
