// A checkpoint of transformers as a GGUF file.
#pragma once

#include <filesystem>
#include <string>

#include "base/thread_pool.h"
#include "convert/model_format.h"
#include "convert/model_output.h"

namespace conclave {

struct ConvertOptions {
  std::filesystem::path folder;
  std::filesystem::path target;
  const ModelFormat* format = nullptr;  // null: each matrix keeps the type it has
  std::string name;                     // general.name; empty: the folder's
  std::string pre;                      // tokenizer.ggml.pre; empty: recognised
};

// Throws Error where the checkpoint is incomplete, is of a kind that conclave does not run, or cannot be read; and where
// the result would not pass describe_model.
WrittenModel convert_model(const ConvertOptions& options, ThreadPool& pool, const WriteProgress& progress);

}  // namespace conclave
