// A GGUF file written from a list of keys and a list of tensors still in other formats: what converting and quantising
// end with.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "convert/recode.h"
#include "gguf/file.h"
#include "gguf/writer.h"

namespace conclave {

// Called some times a second with the bytes of tensor data that are written, of how many, and the tensor at hand. What
// it throws ends the work; nothing is left of the file.
using WriteProgress = std::function<void(std::uint64_t done, std::uint64_t total, std::string_view tensor)>;

struct OutputTensor {
  std::vector<std::int64_t> dims;  // outermost first
  RecodeJob job;
};

struct ModelOutput {
  std::vector<std::pair<std::string, gguf::Metadata>> keys;
  std::vector<OutputTensor> tensors;
  std::uint64_t alignment = 32;
};

struct WrittenModel {
  std::size_t n_tensors = 0;
  std::int64_t n_params = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t file_bytes = 0;
  std::vector<std::string> notes;  // what the user should know, a line each
};

// Throws Error where a model cannot be written to `target`: it is one of the `inputs` (they are read while it is
// written), or exists and is not a regular file.
void require_model_output(const std::filesystem::path& target, std::span<const std::filesystem::path> inputs);

// The file appears under `path` when it is complete and `check` (which may be empty) has looked at it without throwing;
// whatever goes wrong before that, nothing is left.
WrittenModel write_model(const std::filesystem::path& path, const ModelOutput& output, ThreadPool& pool,
                         const WriteProgress& progress, const std::function<void(const gguf::File&)>& check = {});

}  // namespace conclave
