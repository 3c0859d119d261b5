#include "text/sentencepiece.h"

#include <algorithm>

#include "base/float_order.h"
#include "text/unicode.h"

namespace conclave {
namespace {

constexpr TokenId kNoToken = -1;
constexpr TokenId kMarkItself = -2;  // U+2581 in the text, not a space: never merged

// Higher scores first, as an ascending number below kNoMerge. Zeros of both signs are one score.
std::uint32_t order_of(float score) {
  return ~ascending_bits(score);
}

std::string byte_token_text(unsigned byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

}  // namespace

SentencePiece::SentencePiece(const Vocabulary& vocabulary, const TokenIndex& index)
    : vocabulary_(&vocabulary), index_(&index) {
  for (const std::string& token : vocabulary.tokens) longest_ = std::max(longest_, token.size());
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const TokenId id = index.find(byte_token_text(byte));
    byte_token_[byte] = id >= 0 ? id : index.find(std::string_view(&c, 1));
  }
}

// What text may become: no control tokens, no byte tokens.
TokenId SentencePiece::find(std::string_view piece) const {
  const TokenId id = index_->find(piece);
  if (id < 0 || vocabulary_->types.empty()) return id;
  const TokenType type = vocabulary_->types[id];
  return type == TokenType::control || type == TokenType::unknown || type == TokenType::byte ? kNoToken : id;
}

Merge SentencePiece::pair(std::string_view text, const MergeSymbol& left, const MergeSymbol& right) const {
  const std::size_t size = std::size_t{left.size} + right.size;
  if (left.id == kMarkItself || right.id == kMarkItself || size > longest_) return {};
  const TokenId id = find(text.substr(left.begin, size));
  if (id < 0) return {};
  return {.order = order_of(vocabulary_->scores[id]), .result = id};
}

void SentencePiece::encode(std::string_view text, bool space_prefix, std::vector<TokenId>& ids) const {
  std::string marked(space_prefix ? kSpaceMark : "");  // with the mark for each space
  marked.reserve(text.size() + kSpaceMark.size());
  Merger merger;
  std::vector<MergeSymbol>& symbols = merger.symbols();
  symbols.reserve(text.size() + 1);
  const auto add = [&](std::size_t begin, TokenId id) {
    symbols.push_back({.id = id,
                       .begin = static_cast<std::uint32_t>(begin),
                       .size = static_cast<std::uint32_t>(marked.size() - begin)});
  };
  if (space_prefix) add(0, kNoToken);
  for (std::size_t position = 0; position < text.size();) {
    const std::uint32_t bytes = decode_utf8(text, position).bytes;
    const std::string_view character = text.substr(position, bytes);
    const std::size_t begin = marked.size();
    marked.append(character == " " ? kSpaceMark : character);
    add(begin, character == kSpaceMark ? kMarkItself : kNoToken);
    position += bytes;
  }
  if (symbols.empty()) return;

  const std::string_view view = marked;
  merger.run([&](const MergeSymbol& left, const MergeSymbol& right) { return pair(view, left, right); });
  for (std::int32_t i = 0; i >= 0; i = symbols[i].next) {
    const MergeSymbol& symbol = symbols[i];
    if (symbol.id >= 0) {
      ids.push_back(symbol.id);
      continue;
    }
    const std::string_view piece = view.substr(symbol.begin, symbol.size);  // a single character
    const TokenId id = symbol.id == kMarkItself ? kNoToken : find(piece);
    if (id >= 0) {
      ids.push_back(id);
    } else {
      append_bytes(symbol.id != kMarkItself && piece == kSpaceMark ? " " : piece, ids);
    }
  }
}

void SentencePiece::append_bytes(std::string_view bytes, std::vector<TokenId>& ids) const {
  bool unknown = false;
  for (const char c : bytes) {
    const TokenId id = byte_token_[static_cast<unsigned char>(c)];
    if (id >= 0) ids.push_back(id);
    unknown = unknown || id < 0;
  }
  if (unknown && vocabulary_->special.unknown) ids.push_back(*vocabulary_->special.unknown);
}

}  // namespace conclave
