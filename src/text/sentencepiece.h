// SentencePiece by scores: of all neighbours that are a token together the one with the best score is merged first.
// What no token covers is written with the byte tokens <0xNN>.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/merge.h"
#include "text/token_index.h"
#include "text/vocabulary.h"

namespace conclave {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, which stands for a space in tokens

class SentencePiece {
 public:
  // Keeps views of both, which must outlive this and stay where they are.
  SentencePiece(const Vocabulary& vocabulary, const TokenIndex& index);

  // Appends the ids of `text`, with a space before it where `space_prefix`. A U+2581 that stands in the text is not a
  // space: it is written as bytes, so that it comes back. Bytes for which there is no token are the unknown token; where
  // the vocabulary has none either, they become no token.
  void encode(std::string_view text, bool space_prefix, std::vector<TokenId>& ids) const;

  bool has_token(unsigned char byte) const { return byte_token_[byte] >= 0; }

 private:
  Merge pair(std::string_view text, const MergeSymbol& left, const MergeSymbol& right) const;
  void append_bytes(std::string_view bytes, std::vector<TokenId>& ids) const;

  TokenId find(std::string_view piece) const;

  const Vocabulary* vocabulary_;
  const TokenIndex* index_;
  std::array<TokenId, 256> byte_token_;
  std::size_t longest_ = 0;  // token, in bytes
};

}  // namespace conclave
