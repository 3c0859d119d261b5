#include "gguf/tensor_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "base/fail.h"
#include "base/file_text.h"

namespace conclave::gguf {
namespace {

// What the address of an element must be a multiple of. Only an alignment below 8 can break it.
std::uint64_t natural_alignment(const TensorType& type) {
  if (type.dtype) return static_cast<std::uint64_t>(dtype_info(*type.dtype).alignment);
  return type.per_block == 1 ? static_cast<std::uint64_t>(type.bytes) : 1;
}

}  // namespace

TensorBytes tensor_bytes(const TensorType& type, std::span<const std::int64_t> dims) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 1) return {.refusal = fmt::format("dimensions {}: each must be at least 1", dims)};
    const auto product = checked_mul(elements, dim);
    if (!product) return {.refusal = fmt::format("dimensions {}: the number of elements overflows", dims)};
    elements = *product;
  }
  if (dims.back() % type.per_block != 0) {
    return {.refusal = fmt::format("rows of {} elements are not whole blocks of {} ({})", dims.back(), type.per_block,
                                   type.name)};
  }
  const auto bytes = checked_mul(elements / type.per_block, type.bytes);
  if (!bytes) return {.refusal = fmt::format("dimensions {}: the number of bytes overflows", dims)};
  return {.bytes = static_cast<std::uint64_t>(*bytes)};
}

void check_layout(const DataSection& section, std::span<const TensorInfo> tensors) {
  const auto refuse = [&](const TensorInfo& tensor, const std::string& reason) {
    fail(ErrorCode::bad_file, "{}: tensor '{}': {}", section.file, printable(tensor.name), reason);
  };
  for (const TensorInfo& tensor : tensors) {
    const auto end = checked_add(tensor.offset, tensor.bytes);
    if (!end || *end > section.file_bytes) {
      refuse(tensor,
             fmt::format("its {} bytes at {} run past the end of the file at {}: the file is truncated or corrupt",
                         tensor.bytes, tensor.offset, section.file_bytes));
    }
    if ((tensor.offset - section.start) % section.alignment != 0) {
      refuse(tensor, fmt::format("its offset {} is not a multiple of the alignment {}", tensor.offset - section.start,
                                 section.alignment));
    }
    if (tensor.offset % natural_alignment(*tensor.type) != 0) {
      refuse(tensor, fmt::format("its position {} is not a multiple of {}, which {} needs", tensor.offset,
                                 natural_alignment(*tensor.type), tensor.type->name));
    }
  }

  std::vector<std::uint32_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return tensors[a].offset != tensors[b].offset ? tensors[a].offset < tensors[b].offset : a < b;
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const TensorInfo& before = tensors[order[i - 1]];
    const TensorInfo& after = tensors[order[i]];
    if (before.offset + before.bytes > after.offset) {
      refuse(after, fmt::format("its bytes overlap those of tensor '{}'", printable(before.name)));
    }
  }
}

}  // namespace conclave::gguf
