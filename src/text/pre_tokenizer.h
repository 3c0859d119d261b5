// How text is cut into words before byte-level BPE merges within each: a list of steps, each of which cuts further what
// the one before has left.
#pragma once

#include <span>
#include <string_view>

#include "text/scanners.h"

namespace conclave {

struct PreTokenizer {
  std::string_view name;  // as files call it
  std::span<const Step> steps;
  bool whole_words = false;  // a word that is a token is that token, whatever the merges would make of it
};

// Null for a name that is not known.
const PreTokenizer* find_pre_tokenizer(std::string_view name);
std::span<const PreTokenizer> pre_tokenizers();

// The end of each word, ascending, the last one chars.size(). Time is linear in the text.
Cuts cut(const PreTokenizer& pre, const Chars& chars);

}  // namespace conclave
