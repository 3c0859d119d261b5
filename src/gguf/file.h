// A GGUF file opened for reading: versions 2 and 3, one part or a split set, little endian.
//
// open() reads the header with bounded reads into memory of its own (so a file that shrinks is an error, not a signal),
// checks every number before it is used, and maps the tensor data without touching it. Nothing is allocated from a
// number that the file's size does not bear out. What it refuses it refuses with one line that names the file, the key
// or tensor, and the reason.
//
// GGUF lists dimensions innermost first. They are reversed here, once: everywhere else dims[0] is the outermost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/types.h"

namespace conclave::gguf {

// One metadata value, a view into its File. The as_... readers give nullopt where the type does not fit: callers say
// what they expected in their own words.
class Value {
 public:
  ValueType type() const;
  ValueType element_type() const;  // of an array; of a scalar, its own type
  std::uint64_t size() const;      // elements of an array; 1 for a scalar

  // Any integer type whose value fits; never a float, never a bool.
  std::optional<std::uint64_t> as_u64() const;
  std::optional<std::int64_t> as_i64() const;
  std::optional<double> as_float() const;  // f32 or f64, NaN and infinities included
  std::optional<bool> as_bool() const;     // a byte of 0 or 1
  std::optional<std::string_view> as_string() const;

  // Elements of an array, index < size(). Random access is O(1) for strings too.
  std::optional<std::uint64_t> u64_at(std::uint64_t index) const;
  std::optional<std::int64_t> i64_at(std::uint64_t index) const;
  std::optional<double> float_at(std::uint64_t index) const;
  std::optional<bool> bool_at(std::uint64_t index) const;
  std::optional<std::string_view> string_at(std::uint64_t index) const;

 private:
  friend class File;
  friend class HeaderParser;
  ValueType type_{};
  ValueType element_type_{};
  std::uint64_t size_ = 1;
  const std::byte* data_ = nullptr;               // the first byte of the value (of the string's text, for a string)
  std::uint64_t text_bytes_ = 0;                  // of a scalar string
  const std::uint32_t* string_starts_ = nullptr;  // of a string array: size + 1 positions relative to data_
};

struct KeyValue {
  std::string_view key;
  Value value;
};

struct TensorInfo {
  std::string_view name;
  const TensorType* type = nullptr;
  std::vector<std::int64_t> dims;  // outermost first; at least one, each at least 1
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // of the first byte, from the start of its part
  std::uint32_t part = 0;    // which file of a split set
};

class File {
 public:
  // Opens `path`. If it is a part of a split set (NAME-00001-of-000NN.gguf, any part), all parts are opened and checked
  // to belong together; the key-values are the first part's.
  static File open(const std::filesystem::path& path);

  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  ~File();

  std::uint32_t version() const;
  std::uint64_t alignment() const;
  std::uint64_t file_bytes() const;  // of all parts together
  std::uint32_t parts() const;

  std::span<const KeyValue> keys() const;  // in file order
  const Value* find(std::string_view key) const;
  std::span<const TensorInfo> tensors() const;  // in file order, part by part
  const TensorInfo* find_tensor(std::string_view name) const;

  // The tensor's bytes in the mapping. Throws if the file has become shorter since it was opened.
  std::span<const std::byte> data(const TensorInfo& tensor) const;

 private:
  struct Impl;
  explicit File(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace conclave::gguf
