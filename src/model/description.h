// The check that stands before every run: what a file must be for conclave to run it as a model.
#pragma once

#include <cstdint>
#include <vector>

#include "gguf/file.h"
#include "model/config.h"
#include "model/tensors.h"
#include "model/tokenizer_check.h"

namespace conclave {

struct ModelSize {
  std::int64_t n_params = 0;  // elements of all tensors
  // Elements that one token's step reads: of the routed experts top_k of n_experts, of the token embedding one row, and
  // all of the rest with the head. A tied embedding counts as the head, in full.
  std::int64_t n_active_params = 0;
  std::uint64_t weight_bytes = 0;        // of all tensors, as stored
  std::uint64_t kv_bytes_per_token = 0;  // keys and values of all layers in f16
};

// How much of a model is stored in one tensor type.
struct FormatUse {
  const gguf::TensorType* type = nullptr;
  std::int64_t n_tensors = 0;
  std::int64_t n_params = 0;
  std::uint64_t bytes = 0;
};

// Views into the gguf::File, which must outlive this.
struct ModelDescription {
  ModelConfig config;
  TokenizerDescription tokenizer;
  ModelTensors tensors;
  ModelSize size;
  std::vector<FormatUse> formats;  // most bytes first
};

// Throws Error(bad_file) with one line that names the key or the tensor and the reason, for every file the runner would
// refuse: an architecture it does not know, a hyperparameter that is missing, mistyped or makes no sense, a tensor that
// is missing, misshaped, in a format without arithmetic, or not of the family (it would have to be ignored, and results
// would silently differ), and a tokenizer that is not sound. Reads the header only.
ModelDescription describe_model(const gguf::File& file);

}  // namespace conclave
