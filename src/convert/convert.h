// A checkpoint of transformers as a GGUF file.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "convert/model_format.h"
#include "convert/model_output.h"

namespace conclave {

// What a file may say of itself, as general.KEY: its author, a description, a licence.
std::span<const std::string_view> about_keys();

struct ConvertOptions {
  std::filesystem::path folder;
  std::filesystem::path target;
  const ModelFormat* format = nullptr;                     // null: each matrix keeps the type it has
  std::string name;                                        // general.name; empty: the folder's
  std::string pre;                                         // tokenizer.ggml.pre; empty: recognised
  std::vector<std::pair<std::string, std::string>> about;  // each of about_keys() at most once, and its text
};

// Throws Error where the checkpoint is incomplete, is of a kind that conclave does not run, or cannot be read; and where
// the result would not pass describe_model.
WrittenModel convert_model(const ConvertOptions& options, ThreadPool& pool, const WriteProgress& progress);

}  // namespace conclave
