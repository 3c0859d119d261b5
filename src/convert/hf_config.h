// From a checkpoint's config.json to a ModelConfig and to the keys of a GGUF file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "convert/json_file.h"
#include "gguf/writer.h"
#include "model/config.h"
#include "model/families.h"

namespace conclave {

using KeyList = std::vector<std::pair<std::string, gguf::Metadata>>;

// What transformers' class for a kind of model assumes where its config.json is silent. To add a kind, add a row to the
// table in hf_config.cpp; its tensors' names are in hf_tensors.cpp.
struct HfArchitecture {
  std::string_view name;        // config.json's architectures[0]
  std::string_view model_type;  // config.json's model_type
  std::string_view family;      // general.architecture of the GGUF file
  double rope_theta;
  double norm_eps;
  bool moe_width;             // experts are moe_intermediate_size wide; else intermediate_size
  bool always_renormalizes;   // has no norm_topk_prob: the weights of the chosen experts always sum to 1
  bool windows_without_flag;  // sliding_window holds without use_sliding_window
  bool interleaved_rope;      // GGUF wants q and k with the pairs of a rotation side by side
};

struct HfModel {
  const HfArchitecture* architecture = nullptr;
  const Family* family = nullptr;
  ModelConfig config;        // all but attention.qkv_bias, which the tensors tell
  std::optional<bool> tied;  // tie_word_embeddings
  std::optional<bool> qkv_bias;
  std::vector<float> rope_factors;  // of rope type "llama3": divides each pair's frequency; else empty
  KeyList keys;                     // those of the architecture: "qwen3moe.block_count", ...
};

// Throws Error naming the file and the member: missing, of the wrong type, out of range, or asking for what conclave
// does not compute.
HfModel read_hf_config(const JsonObject& config);

}  // namespace conclave
