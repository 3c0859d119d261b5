// How many bytes a tensor takes, and whether the tensors of one file lie where they may.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gguf/file.h"
#include "gguf/types.h"

namespace conclave::gguf {

// Bytes of a tensor of `dims`, outermost first. `refusal` says why there is no answer: a dimension below 1, a last
// dimension that is not whole blocks, or a size beyond 2^63 - 1 elements or bytes.
struct TensorBytes {
  std::uint64_t bytes = 0;
  std::string refusal;  // empty where bytes holds
};
TensorBytes tensor_bytes(const TensorType& type, std::span<const std::int64_t> dims);

// Where the file keeps its tensors. Throws Error unless every tensor lies inside the file, on its alignment, and apart
// from the others. Gaps are fine, and so is any order.
struct DataSection {
  const std::string& file;  // its name, for messages
  std::uint64_t start;      // where tensor data begins
  std::uint64_t file_bytes;
  std::uint64_t alignment;
};
void check_layout(const DataSection& section, std::span<const TensorInfo> tensors);

}  // namespace conclave::gguf
