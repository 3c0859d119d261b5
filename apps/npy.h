// Writes a NumPy array file (format 1.0), row by row; it appears whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "base/file_output.h"

namespace conclave {

class NpyWriter {
 public:
  // f32 [n_rows, n_columns]
  NpyWriter(const std::filesystem::path& path, std::int64_t n_rows, std::int64_t n_columns);
  void write(std::span<const float> row) { file_.write(std::as_bytes(row)); }
  void finish() { file_.commit(); }

 private:
  FileOutput file_;
};

}  // namespace conclave
