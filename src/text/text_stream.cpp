#include "text/text_stream.h"

#include <utility>

#include "text/unicode.h"

namespace conclave {

std::string TextStream::push(TokenId id) {
  decoder_.append(id, held_);
  const std::size_t complete = held_.size() - unfinished_utf8(held_);
  std::string out = held_.substr(0, complete);
  held_.erase(0, complete);
  return out;
}

std::string TextStream::finish() {
  return std::exchange(held_, {});
}

}  // namespace conclave
