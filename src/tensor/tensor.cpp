#include "tensor/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/checked.h"
#include "base/error.h"

namespace conclave {

Tensor dense(Buffer& buffer, std::int64_t byte_offset, DType dtype, std::span<const std::int64_t> dims) {
  CONCLAVE_CHECK(!dims.empty() && dims.size() <= kMaxRank, shape_text(dims));
  const DTypeInfo& info = dtype_info(dtype);
  Tensor t{.buffer = &buffer, .byte_offset = byte_offset, .dtype = dtype, .rank = static_cast<int>(dims.size())};
  std::int64_t stride = info.bytes;
  for (int i = t.rank - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    t.dims[at] = dims[at];
    t.strides[at] = stride;
    stride *= i == t.rank - 1 ? dims[at] / info.per_block : dims[at];
  }
  return t;
}

Tensor dense(Buffer& buffer, std::int64_t byte_offset, DType dtype, std::initializer_list<std::int64_t> dims) {
  return dense(buffer, byte_offset, dtype, std::span(dims.begin(), dims.size()));
}

Tensor slice(const Tensor& t, int dim, std::int64_t start, std::int64_t count) {
  CONCLAVE_CHECK(dim >= 0 && dim < t.rank && start >= 0 && count >= 0 && start + count <= t.dim(dim),
                 fmt::format("dimension {} of {}, {} from {}", dim, shape_text(t.shape()), count, start));
  Tensor part = t;
  const std::int64_t per_step = dim == t.rank - 1 ? dtype_info(t.dtype).per_block : 1;
  CONCLAVE_CHECK(start % per_step == 0 && count % per_step == 0, fmt::format("{} from {}", count, start));
  part.byte_offset += start / per_step * t.stride(dim);
  part.dims[static_cast<std::size_t>(dim)] = count;
  return part;
}

Tensor select_outer(const Tensor& t, std::int64_t i) {
  CONCLAVE_CHECK(t.rank >= 2 && i >= 0 && i < t.dim(0), fmt::format("{} of {}", i, shape_text(t.shape())));
  Tensor part = t;
  part.byte_offset += i * t.stride(0);
  --part.rank;
  for (int d = 0; d < kMaxRank; ++d) {
    const auto at = static_cast<std::size_t>(d);
    part.dims[at] = d < part.rank ? t.dims[at + 1] : 0;
    part.strides[at] = d < part.rank ? t.strides[at + 1] : 0;
  }
  return part;
}

std::int64_t element_count(const Tensor& t) {
  std::int64_t n = 1;
  for (const std::int64_t d : t.shape()) n *= d;
  return n;
}

std::int64_t row_bytes(const Tensor& t) {
  return t.inner() / dtype_info(t.dtype).per_block * dtype_info(t.dtype).bytes;
}

std::int64_t row_count(const Tensor& t) {
  std::int64_t n = 1;
  for (int i = 0; i + 1 < t.rank; ++i) n *= t.dim(i);
  return n;
}

std::int64_t dense_bytes(DType dtype, std::span<const std::int64_t> dims) {
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= d;
  return n / dtype_info(dtype).per_block * dtype_info(dtype).bytes;
}

ByteRange byte_range(const Tensor& t) {
  std::int64_t end = t.byte_offset + row_bytes(t);
  for (int i = 0; i < t.rank; ++i) {
    if (t.dim(i) == 0) return {t.byte_offset, t.byte_offset};
    if (i + 1 < t.rank) end += (t.dim(i) - 1) * t.stride(i);
  }
  return {t.byte_offset, end};
}

bool overlap(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.buffer == b.buffer && byte_range(a).overlaps(byte_range(b));
}
bool overlap_any(const Tensor& a, std::initializer_list<const Tensor*> others) {
  return std::any_of(others.begin(), others.end(), [&](const Tensor* other) { return overlap(a, *other); });
}

std::string fault_of_view(const Tensor& t) {
  if (t.rank < 1 || t.rank > kMaxRank) return fmt::format("has rank {}, expected 1 to {}", t.rank, kMaxRank);
  const DTypeInfo& info = dtype_info(t.dtype);
  bool empty = false;
  for (const std::int64_t d : t.shape()) {
    if (d < 0) return fmt::format("is {}: a dimension is negative", shape_text(t.shape()));
    empty = empty || d == 0;
  }
  if (t.inner() % info.per_block != 0) {
    return fmt::format("is {}: rows of {} come in blocks of {}", shape_text(t.shape()), info.name, info.per_block);
  }
  if (t.stride(t.rank - 1) != info.bytes) {
    return fmt::format("has an inner stride of {} bytes, expected {} (dense rows)", t.stride(t.rank - 1), info.bytes);
  }
  if (t.byte_offset < 0) return fmt::format("starts at byte {}", t.byte_offset);
  if (t.byte_offset % info.alignment != 0) {
    return fmt::format("starts at byte {}, which is not a multiple of {}", t.byte_offset, info.alignment);
  }
  // The number of elements and the last byte, with every step checked; a 1-long dimension's stride is never walked.
  std::optional<std::int64_t> elements = 1;
  for (const std::int64_t d : t.shape()) elements = elements && !empty ? checked_mul(*elements, d) : elements;
  const auto row = checked_mul(t.inner() / info.per_block, info.bytes);
  auto end = row ? checked_add(t.byte_offset, empty ? std::int64_t{0} : *row) : std::nullopt;
  for (int i = 0; i + 1 < t.rank && !empty; ++i) {
    if (t.dim(i) == 1) continue;
    if (t.stride(i) < 0 || t.stride(i) % info.alignment != 0) {
      return fmt::format("has a stride of {} bytes in dimension {}", t.stride(i), i);
    }
    const auto reach = checked_mul(t.dim(i) - 1, t.stride(i));
    end = end && reach ? checked_add(*end, *reach) : std::nullopt;
  }
  if (!end || !elements) return fmt::format("is {}: its size overflows", shape_text(t.shape()));
  if (*end > t.buffer->bytes()) {
    return fmt::format("is {} of {} and ends at byte {} of a buffer of {}", shape_text(t.shape()), info.name, *end,
                       t.buffer->bytes());
  }
  return {};
}

std::string shape_text(std::span<const std::int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ","));
}

}  // namespace conclave
