// Finds the tensors a family asks for and holds them to their shapes.
#pragma once

#include "gguf/file.h"
#include "model/config.h"
#include "model/families.h"
#include "model/tensors.h"

namespace conclave {

// Throws Error(bad_file) naming the tensor: missing, misshaped, of a type it cannot have, or unknown to the family.
ModelTensors bind_tensors(const gguf::File& file, const Family& family, const ModelConfig& config);

}  // namespace conclave
