// From a file's key-values to a ModelConfig.
#pragma once

#include "gguf/file.h"
#include "model/config.h"
#include "model/families.h"

namespace conclave {

// What a file may ask for at most. Far above any model, and low enough that products of three of them fit 64 bits.
inline constexpr std::int64_t kMaxLayers = 1024;
inline constexpr std::int64_t kMaxWidth = 1 << 20;  // d_model, d_ff, n_heads * d_head
inline constexpr std::int64_t kMaxHeads = 4096;
inline constexpr std::int64_t kMaxHeadWidth = 1 << 16;
inline constexpr std::int64_t kMaxExperts = 4096;
inline constexpr std::int64_t kMaxContext = std::int64_t{1} << 31;
inline constexpr std::int64_t kMaxVocab = 1 << 24;

// Every hyperparameter but n_vocab, which depends on the tokenizer and is 0 here. Throws Error(bad_file) naming the
// key.
ModelConfig read_config(const gguf::File& file, const Family& family);

}  // namespace conclave
