// Tensor: a non-owning view of typed elements in a buffer, outermost dimension first.
//
// Strides are in bytes, so that rows of blocks and rows of numbers are one case. The innermost dimension is dense: its
// stride is the size of one block, and its length a whole number of blocks.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace conclave {

inline constexpr int kMaxRank = 4;

struct Tensor {
  Buffer* buffer = nullptr;
  std::int64_t byte_offset = 0;
  DType dtype = DType::f32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> dims{};
  std::array<std::int64_t, kMaxRank> strides{};  // bytes from one index to the next; innermost: bytes of one block

  // An optional member of a descriptor that was not given has no buffer.
  bool defined() const { return buffer != nullptr; }
  std::int64_t dim(int i) const { return dims[static_cast<std::size_t>(i)]; }
  std::int64_t stride(int i) const { return strides[static_cast<std::size_t>(i)]; }
  std::int64_t inner() const { return dim(rank - 1); }
  std::span<const std::int64_t> shape() const { return {dims.data(), static_cast<std::size_t>(rank)}; }

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// A dense tensor at `byte_offset` of `buffer`.
Tensor dense(Buffer& buffer, std::int64_t byte_offset, DType dtype, std::span<const std::int64_t> dims);
Tensor dense(Buffer& buffer, std::int64_t byte_offset, DType dtype, std::initializer_list<std::int64_t> dims);

// `count` indices of dimension `dim` from `start`. Of the innermost dimension, whole blocks only.
Tensor slice(const Tensor& t, int dim, std::int64_t start, std::int64_t count);

// Index `i` of the outermost dimension, which goes away.
Tensor select_outer(const Tensor& t, std::int64_t i);

std::int64_t element_count(const Tensor& t);
std::int64_t row_bytes(const Tensor& t);  // of one innermost row
std::int64_t row_count(const Tensor& t);  // how many innermost rows
std::int64_t dense_bytes(DType dtype, std::span<const std::int64_t> dims);

// The bytes the view spans in its buffer: [begin, end). Empty where a dimension is 0.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool empty() const { return begin == end; }
  bool overlaps(const ByteRange& other) const {
    return !empty() && !other.empty() && begin < other.end && other.begin < end;
  }
};
ByteRange byte_range(const Tensor& t);
// Whether the views have bytes in common, or may have.
bool overlap(const Tensor& a, const Tensor& b);
bool overlap_any(const Tensor& a, std::initializer_list<const Tensor*> others);

// Why the view itself cannot be used, or an empty string: a negative dimension, an inner row that is not dense or not
// whole blocks, a misaligned offset or stride, sizes that overflow, bytes outside the buffer. All arithmetic is
// checked.
std::string fault_of_view(const Tensor& t);

std::string shape_text(std::span<const std::int64_t> dims);  // "[5,2048]"

}  // namespace conclave
