// The header of a file in memory of our own, which grows only by bytes that were really read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "base/mapped_file.h"

namespace conclave::gguf {

class HeaderBytes {
 public:
  explicit HeaderBytes(const MappedFile& file) : file_(&file) {}

  // Makes the bytes before `end` available; false where the file now ends before that. Moves the memory: keep
  // positions, not pointers, until the last call.
  bool load(std::uint64_t end) { return end <= loaded_ || read_on(end); }
  void shrink_to(std::uint64_t bytes);

  const std::byte* at(std::uint64_t position) const { return bytes_.get() + position; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  bool read_on(std::uint64_t end);
  void resize(std::uint64_t bytes);

  const MappedFile* file_;
  std::unique_ptr<std::byte[], Free> bytes_;  // realloc moves pages where a vector would copy them and hold both
  std::uint64_t loaded_ = 0;
};

}  // namespace conclave::gguf
