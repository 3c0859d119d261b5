// What a ModelText is made of.
#pragma once

#include <string>

#include "conclave/text.h"
#include "text/tokenizer.h"

namespace conclave {

struct ModelText::Impl {
  Tokenizer tokenizer;
  std::string chat_template;  // empty: the file has none
};

}  // namespace conclave
