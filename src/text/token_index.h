// Tokens by their text.
#pragma once

#include <string_view>
#include <unordered_map>

#include "text/vocabulary.h"

namespace conclave {

// Views of the vocabulary's tokens: it must outlive this and stay where it is. Empty tokens are left out.
class TokenIndex {
 public:
  explicit TokenIndex(const Vocabulary& vocabulary) {
    ids_.reserve(vocabulary.tokens.size());
    for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      if (!vocabulary.tokens[i].empty()) ids_.emplace(vocabulary.tokens[i], static_cast<TokenId>(i));
    }
  }

  // -1 where there is none.
  TokenId find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }

 private:
  std::unordered_map<std::string_view, TokenId> ids_;
};

}  // namespace conclave
