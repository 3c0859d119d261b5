// Which of the pre-tokenizers that GGUF files have names for a tokenizer.json describes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "convert/json_file.h"

namespace conclave {

// `pre_tokenizer` is tokenizer.json's member of that name. The name for tokenizer.ggml.pre, by the exact steps it is
// made of, or nullopt where these are none that has a name.
std::optional<std::string_view> recognize_pre_tokenizer(const Json& pre_tokenizer);

}  // namespace conclave
