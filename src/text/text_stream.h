// Text from ids as they are made. What comes out is cut only between characters, so that a terminal or a JSON writer
// gets whole ones; bytes that cannot become a character are passed on as they are.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace conclave {

class TextStream {
 public:
  // `tokenizer` must outlive this.
  explicit TextStream(const Tokenizer& tokenizer, DecodeOptions options = {}) : decoder_(tokenizer, options) {}

  std::string push(TokenId id);  // what is complete now; may be empty
  std::string finish();          // whatever is left; after it a new text starts to gather

 private:
  Decoder decoder_;
  std::string held_;
};

}  // namespace conclave
