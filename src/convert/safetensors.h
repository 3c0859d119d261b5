// safetensors files: a checkpoint's tensors as they are published.
//
//   byte 0    8                     8 + n
//        | n  | header: n bytes of  | data: each tensor's elements, row-major,
//        | u64| JSON                | little endian                          |
//
//   header    {"__metadata__": {NAME: TEXT}, NAME: {"dtype": "BF16", "shape": [768, 2048], "data_offsets": [begin,
//              end]}, ...}          offsets count from the start of the data
//
// Everything is checked before it is used: the header's length against the file, each shape against its bytes, offsets
// against the file and each other. Gaps between tensors are fine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "tensor/dtype.h"

namespace conclave {

inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;  // the format's own limit

struct SafeTensor {
  std::string name;
  std::string_view dtype;          // as the header has it: "BF16", "F8_E4M3", ...
  std::optional<DType> type;       // f32, f16 or bf16; empty for what conclave does not convert from
  std::vector<std::int64_t> dims;  // outermost first; may be empty, may have zeros
  std::uint64_t offset = 0;        // of the first byte, from the start of the data
  std::uint64_t bytes = 0;
};

// The tensors of a header, in the order of their data. `shown` is the file's name for messages. Throws Error(bad_file).
std::vector<SafeTensor> parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                                                 const std::string& shown);

class SafetensorsFile {
 public:
  static SafetensorsFile open(const std::filesystem::path& path);

  const std::string& shown_path() const { return file_.shown_path(); }
  std::span<const SafeTensor> tensors() const { return tensors_; }
  // The tensor's bytes in the mapping. Throws where the file has become shorter since it was opened.
  std::span<const std::byte> data(const SafeTensor& tensor) const;

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  MappedFile file_;
  std::uint64_t data_start_ = 0;
  std::vector<SafeTensor> tensors_;
};

}  // namespace conclave
