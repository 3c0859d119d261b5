// From a checkpoint's tokenizer.json, tokenizer_config.json, chat_template.jinja and generation_config.json to the
// tokenizer's keys of a GGUF file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convert/checkpoint.h"
#include "convert/hf_config.h"

namespace conclave {

struct HfTokenizer {
  KeyList keys;                    // "tokenizer.ggml.model", ...
  std::vector<std::string> notes;  // what the user should know
};

// Byte-level BPE becomes the model "gpt2", BPE over characters with a fallback to bytes (SentencePiece's way) becomes
// "llama", with scores that merge in the order of the merges. Ids below n_vocab that no token has are filled with
// unused tokens [PADn]. Without a tokenizer.json the model is "none": it runs on token ids.
//
// `pre` names the pre-tokenizer where it is not empty, instead of recognising it. Throws Error naming the file.
HfTokenizer read_hf_tokenizer(const Checkpoint& checkpoint, const HfModel& model, std::string_view pre);

}  // namespace conclave
