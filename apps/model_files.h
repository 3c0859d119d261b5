// The files that an open model is read from: nothing is to be written over them.
#pragma once

#include <filesystem>
#include <vector>

#include "engine/loaded_model.h"
#include "gguf/split_set.h"

namespace conclave {

// `path` is the one it was opened by.
inline std::vector<std::filesystem::path> files_of(const Model& model, const std::filesystem::path& path) {
  return gguf::files_of_set(path, model.impl().file.parts());
}

}  // namespace conclave
