// What a Model is made of, and how one comes to be on a given device.
#pragma once

#include <filesystem>
#include <memory>

#include "conclave/model.h"
#include "gguf/file.h"
#include "model/description.h"
#include "model/weights.h"
#include "ops/device.h"

namespace conclave {

struct Model::Impl {
  gguf::File file;
  ModelDescription description;
  std::unique_ptr<Device> device;
  ModelWeights weights;
  ModelFacts facts;
};

// Checks the file, which was opened by this path. Throws Error with one line that names the file.
Model load_model(gguf::File file, const std::filesystem::path& path, std::unique_ptr<Device> device,
                 const LoadProgress& progress);

}  // namespace conclave
