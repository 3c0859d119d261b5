// Everything before the tensor data of one file: counts, key-values, tensor descriptions.
//
//   "GGUF"  u32 version  u64 n_tensors  u64 n_keys
//   n_keys    x  string key   u32 type   value                  value of an array: u32 type, u64 count, elements
//   n_tensors x  string name  u32 n_dims  u64 dims[n_dims]  u32 type  u64 offset
//   padding to the alignment, then the data that the offsets count from
//
// A string is a u64 length and its bytes. All numbers are little endian and lie at any position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "gguf/file.h"
#include "gguf/header_bytes.h"

namespace conclave::gguf {

struct Header {
  explicit Header(const MappedFile& file) : bytes(file) {}

  std::uint32_t version = 0;
  std::uint64_t alignment = 0;
  std::vector<KeyValue> keys;            // in file order; views into bytes
  std::vector<std::uint32_t> key_order;  // places in keys, sorted by key
  std::vector<TensorInfo> tensors;       // in file order; names are views into bytes
  HeaderBytes bytes;
  std::vector<std::vector<std::uint32_t>> string_starts;  // of every array of strings
};

const KeyValue* find_key(const Header& header, std::string_view key);

class HeaderParser {
 public:
  explicit HeaderParser(const MappedFile& file) : file_(file), header_(file) {}

  // Once. Throws Error for anything that is not as it should be.
  Header parse();

 private:
  // Positions fit 32 bits because headers are bounded (kMaxHeaderBytes).
  struct Range {
    std::uint32_t begin = 0;
    std::uint32_t bytes = 0;
  };
  static constexpr std::uint32_t kNoStarts = 0xFFFFFFFF;
  // A Value whose pointers are still positions: the bytes may move while more of the file is read.
  struct PendingKey {
    Range name;
    Value value;
    Range data;
    std::uint32_t starts = kNoStarts;  // place in header_.string_starts
  };
  enum class Item { file, key, tensor };

  void read_preamble();
  void read_key();
  void read_scalar(PendingKey& key);
  void read_array(PendingKey& key);
  void check_bools(const Range& bytes);
  void note_alignment(const PendingKey& key);
  void sort_keys();
  void read_tensor();
  void read_tensor_dims(TensorInfo& tensor);
  void point_into_bytes();

  void need_room(std::uint64_t bytes, std::string_view what) const;  // throws where the file or the limit has less
  void need(std::uint64_t bytes, std::string_view what);             // the same, and makes them available
  template <class T>
  T take(std::string_view what);
  Range take_bytes(std::uint64_t bytes, std::string_view what);
  Range take_string(std::string_view what);
  ValueType take_value_type(std::string_view what);
  std::uint64_t left() const { return file_.size() - position_; }
  std::string_view text(const Range& range) const;

  [[noreturn]] void refuse(const std::string& reason) const;  // names the file and what is being read

  const MappedFile& file_;
  Header header_;
  std::uint64_t position_ = 0;
  std::uint64_t n_tensors_ = 0;
  std::uint64_t n_keys_ = 0;
  std::vector<PendingKey> keys_;
  std::vector<Range> tensor_names_;

  Item item_ = Item::file;  // what is being read, for messages
  std::uint64_t item_index_ = 0;
  Range item_name_;
  bool item_named_ = false;
};

}  // namespace conclave::gguf
