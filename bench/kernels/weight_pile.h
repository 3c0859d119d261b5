// WeightPile: a file of random blocks of one format, mapped as a model file is. Blocks have no place of their own in a
// tensor, so any weight of any model is a view of the pile at some offset, and consecutive runs take views that follow
// each other: weights come from memory, not from a cache that still holds them.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/tensor.h"

namespace conclave::bench {

using Dims = std::vector<std::int64_t>;

struct PileRequest {
  DType type = DType::q4_k;
  std::int64_t bytes = 0;
  std::filesystem::path folder;  // where the file is made; it has no name there, and goes when this process does
  std::uint64_t seed = 1;
};

class WeightPile {
 public:
  // Writes, maps and touches the file. Throws an Error where the folder cannot take it; the free space is asked first.
  explicit WeightPile(const PileRequest& request);

  DType type() const { return type_; }
  std::span<const std::byte> bytes() const { return file_.mapped(); }
  std::int64_t size() const { return static_cast<std::int64_t>(bytes().size()); }

  // A dense tensor at `offset`, a multiple of pile_alignment().
  Tensor view(std::int64_t offset, const Dims& dims) const;

 private:
  DType type_;
  MappedFile file_;
  std::unique_ptr<Buffer> buffer_;
};

// Tensors begin at whole blocks and whole cache lines, as they do in a model file.
std::int64_t pile_alignment(DType type);
std::int64_t aligned_bytes(DType type, const Dims& dims);

}  // namespace conclave::bench
