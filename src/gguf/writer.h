// Writes GGUF (version 3, or 2 where asked), streaming: the header first, then each tensor's bytes in order, nothing held back.
//
// Byte-stable: the same calls give the same file. The file grows under a temporary name beside the target and takes the
// final name in finish(); a writer that is destroyed before that leaves nothing behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gguf/types.h"

namespace conclave::gguf {

// What can be written under a key. (An array of arrays cannot.)
using Metadata =
    std::variant<bool, std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                 std::uint64_t, std::int64_t, float, double, std::string, std::vector<bool>, std::vector<std::uint8_t>,
                 std::vector<std::int8_t>, std::vector<std::uint16_t>, std::vector<std::int16_t>,
                 std::vector<std::uint32_t>, std::vector<std::int32_t>, std::vector<std::uint64_t>,
                 std::vector<std::int64_t>, std::vector<float>, std::vector<double>, std::vector<std::string>>;

struct WriterOptions {
  std::uint32_t version = 3;     // 2 or 3: they differ in this number alone
  std::uint64_t alignment = 32;  // written as general.alignment where it is not 32
  // Split set: the most bytes of tensor data in one part (a tensor is never cut); 0 writes a single file. With a limit,
  // `path` is the stem: model.gguf becomes model-00001-of-000NN.gguf, with the split.* keys.
  std::uint64_t max_part_bytes = 0;
};

class Writer {
 public:
  explicit Writer(std::filesystem::path path, WriterOptions options = {});
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // First all keys and all tensor declarations, in file order ...
  void add(std::string_view key, Metadata value);
  void declare(std::string_view name, DType type, std::vector<std::int64_t> dims);  // dims outermost first
  // ... then every declared tensor's bytes, in the same order, in pieces of any size ...
  void write(std::span<const std::byte> bytes);
  // ... then the end. Throws where a tensor is incomplete.
  void finish();
  // The same, with a look at the complete file before it takes its name (of a split set: the first part, which does not
  // have the others beside it yet). What `check` throws leaves nothing behind.
  void finish(const std::function<void(const std::filesystem::path& complete)>& check);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace conclave::gguf
