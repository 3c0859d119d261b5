// Reads what tools/golden_quant.py wrote under tests/golden/quant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace conclave::test {

inline std::filesystem::path golden_path(const std::string& name) {
  return std::filesystem::path(CONCLAVE_SOURCE_DIR) / "tests" / "golden" / "quant" / name;
}

inline std::string name_of(DType type) {
  return std::string(dtype_info(type).name);
}

inline std::vector<std::byte> read_golden(const std::string& name) {
  std::ifstream file(golden_path(name), std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + golden_path(name).string());
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(chars.size());
  if (!chars.empty()) std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

inline std::vector<float> to_floats(const std::byte* from, std::size_t count) {
  std::vector<float> out(count);
  if (count > 0) std::memcpy(out.data(), from, count * sizeof(float));
  return out;
}

// Blocks and the values another implementation decodes them to.
struct DecodeGolden {
  std::uint32_t n_blocks = 0;
  std::uint32_t block_bytes = 0;
  std::uint32_t per_block = 0;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

inline DecodeGolden read_decode_golden(const std::string& format) {
  constexpr std::size_t kHeader = 16;
  const std::vector<std::byte> bytes = read_golden("decode_" + format + ".bin");
  if (bytes.size() < kHeader || std::memcmp(bytes.data(), "CQD1", 4) != 0) {
    throw std::runtime_error("not a decode golden: " + format);
  }
  DecodeGolden golden;
  std::memcpy(&golden.n_blocks, bytes.data() + 4, 4);
  std::memcpy(&golden.block_bytes, bytes.data() + 8, 4);
  std::memcpy(&golden.per_block, bytes.data() + 12, 4);
  const std::size_t n_bytes = std::size_t{golden.n_blocks} * golden.block_bytes;
  const std::size_t n_values = std::size_t{golden.n_blocks} * golden.per_block;
  if (bytes.size() != kHeader + n_bytes + n_values * sizeof(float)) {
    throw std::runtime_error("decode golden of the wrong size: " + format);
  }
  golden.blocks.assign(bytes.begin() + kHeader, bytes.begin() + kHeader + static_cast<std::ptrdiff_t>(n_bytes));
  golden.values = to_floats(bytes.data() + kHeader + n_bytes, n_values);
  return golden;
}

}  // namespace conclave::test
