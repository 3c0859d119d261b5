// The tokenizer of a model file.
#pragma once

#include <optional>

#include "gguf/file.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"

namespace conclave {

// Nothing where the file says that it has no vocabulary. Throws Error(bad_file) for one that describe_tokenizer refuses.
// What the file leaves unsaid is what files of its kind mean: SentencePiece puts a space and the begin token (1) before
// a text, byte BPE neither, but for the pre-tokeniser llama-bpe, which has the begin token.
std::optional<Vocabulary> read_vocabulary(const gguf::File& file);

// The same made ready; the error names what is missing where the file has no vocabulary.
Tokenizer read_tokenizer(const gguf::File& file);

}  // namespace conclave
