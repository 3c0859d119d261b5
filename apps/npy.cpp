#include "npy.h"

#include <fmt/format.h>

#include <bit>
#include <string>

namespace conclave {

static_assert(std::endian::native == std::endian::little, "the file says that its numbers are little endian");

NpyWriter::NpyWriter(const std::filesystem::path& path, std::int64_t n_rows, std::int64_t n_columns) : file_(path) {
  // The data begins at a multiple of 64; the text before it is padded with blanks and ends a line.
  constexpr std::size_t kPrefix = 10;
  std::string text = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", n_rows, n_columns);
  text.append(63 - (kPrefix + text.size()) % 64, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xFF);
  header += static_cast<char>(text.size() >> 8);
  header += text;
  file_.write(std::as_bytes(std::span<const char>(header)));
}

}  // namespace conclave
