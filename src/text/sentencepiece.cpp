#include "text/sentencepiece.h"

#include <bit>

#include "text/unicode.h"

namespace conclave {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
constexpr TokenId kNoToken = -1;
constexpr TokenId kMarkItself = -2;  // U+2581 in the text, not a space: never merged

// Higher scores first, as an ascending number below kNoMerge. Zeros of both signs are one score.
std::uint32_t order_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score == 0.0F ? 0.0F : score);
  const std::uint32_t ascending = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return ~ascending;
}

std::string byte_token_text(unsigned byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  return {'<', '0', 'x', kHex[byte >> 4], kHex[byte & 15], '>'};
}

}  // namespace

SentencePiece::SentencePiece(const Vocabulary& vocabulary) : vocabulary_(&vocabulary) {
  std::unordered_map<std::string_view, TokenId> all;
  all.reserve(vocabulary.tokens.size());
  ids_.reserve(vocabulary.tokens.size());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const std::string_view token = vocabulary.tokens[i];
    if (token.empty()) continue;
    all.emplace(token, static_cast<TokenId>(i));
    const TokenType type = vocabulary.types.empty() ? TokenType::normal : vocabulary.types[i];
    if (type == TokenType::control || type == TokenType::unknown || type == TokenType::byte) continue;
    ids_.emplace(token, static_cast<TokenId>(i));
    longest_ = std::max(longest_, token.size());
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    auto found = all.find(byte_token_text(byte));
    if (found == all.end()) found = all.find(std::string_view(&c, 1));
    byte_token_[byte] = found == all.end() ? kNoToken : found->second;
  }
}

Merge SentencePiece::pair(std::string_view text, const MergeSymbol& left, const MergeSymbol& right) const {
  const std::size_t size = std::size_t{left.size} + right.size;
  if (left.id == kMarkItself || right.id == kMarkItself || size > longest_) return {};
  const auto found = ids_.find(text.substr(left.begin, size));
  if (found == ids_.end()) return {};
  return {.order = order_of(vocabulary_->scores[found->second]), .result = found->second};
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
    const auto found = symbol.id == kMarkItself ? ids_.end() : ids_.find(piece);
    if (found != ids_.end()) {
      ids.push_back(found->second);
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
