// A GGUF file with its matrices in another format.
#pragma once

#include <filesystem>

#include "base/thread_pool.h"
#include "convert/model_format.h"
#include "convert/model_output.h"

namespace conclave {

struct QuantizeOptions {
  std::filesystem::path source;  // of a split set: any part
  std::filesystem::path target;  // one file
  const ModelFormat* format = nullptr;
};

// Every matrix goes to the format's type by way of f32 (bytes are copied where it has that type already); norms, biases,
// routers and other vectors stay as they are, and so do all keys but general.file_type, general.quantization_version and
// those of a split. To F32 everything is decoded. Files of any architecture are taken. Throws Error where the source has
// no tensors or has one that cannot be decoded.
WrittenModel quantize_model(const QuantizeOptions& options, ThreadPool& pool, const WriteProgress& progress);

}  // namespace conclave
