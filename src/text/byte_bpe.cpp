#include "text/byte_bpe.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"
#include "text/byte_alphabet.h"
#include "text/unicode.h"

namespace conclave {
namespace {

constexpr std::string_view kReplacementBytes = "\xEF\xBF\xBD";

TokenType type_of(const Vocabulary& vocabulary, std::size_t id) {
  return vocabulary.types.empty() ? TokenType::normal : vocabulary.types[id];
}

std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

void MergeTable::reserve(std::size_t count) {
  entries_.assign(std::bit_ceil(count * 2 + 1), Entry{});
}

std::size_t MergeTable::slot(std::uint64_t key) const {
  std::size_t at = (key * 0x9E3779B97F4A7C15U) >> 32 & (entries_.size() - 1);
  while (entries_[at].merge.order != kNoMerge && entries_[at].key != key) at = (at + 1) & (entries_.size() - 1);
  return at;
}

void MergeTable::insert(TokenId left, TokenId right, Merge merge) {
  Entry& entry = entries_[slot(pair_key(left, right))];
  if (entry.merge.order == kNoMerge) entry = {pair_key(left, right), merge};
}

Merge MergeTable::find(TokenId left, TokenId right) const {
  return entries_[slot(pair_key(left, right))].merge;
}

ByteBpe::ByteBpe(const Vocabulary& vocabulary, const TokenIndex& index) : pre_(find_pre_tokenizer(vocabulary.pre)) {
  if (pre_ == nullptr) fail(ErrorCode::bad_file, "pre-tokenizer '{}' is not known", printable(vocabulary.pre));
  std::string text;
  for (unsigned byte = 0; byte < 256; ++byte) {
    text.clear();
    append_utf8(byte_to_char(static_cast<unsigned char>(byte)), text);
    const TokenId id = index.find(text);
    byte_token_[byte] = id;
    stands_for_text_[byte] = id >= 0 && type_of(vocabulary, id) == TokenType::user_defined;
  }
  read_merges(vocabulary, index);
  if (pre_->whole_words) read_whole_words(vocabulary);
}

void ByteBpe::read_merges(const Vocabulary& vocabulary, const TokenIndex& index) {
  merges_.reserve(vocabulary.merges.size());
  std::string joined;
  for (std::size_t i = 0; i < vocabulary.merges.size(); ++i) {
    const std::string_view merge = vocabulary.merges[i];
    const std::size_t space = std::min(merge.find(' ', 1), merge.size());
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(std::min(space + 1, merge.size()));
    const TokenId left_id = index.find(left);
    const TokenId right_id = index.find(right);
    const TokenId result = index.find(joined.assign(left).append(right));
    if (left_id < 0 || right_id < 0 || result < 0) {
      fail(ErrorCode::bad_file, "merge {} is '{}', which is not two tokens that make a third", i, printable(merge));
    }
    merges_.insert(left_id, right_id, {.order = static_cast<std::uint32_t>(i), .result = result});
  }
}

void ByteBpe::read_whole_words(const Vocabulary& vocabulary) {
  whole_words_.reserve(vocabulary.tokens.size());
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = type_of(vocabulary, i);
    if (type == TokenType::control || type == TokenType::unknown) continue;  // typed, these stay text
    if (!in_byte_alphabet(vocabulary.tokens[i])) continue;
    std::string word = bytes_of_token(vocabulary.tokens[i]);
    longest_word_ = std::max(longest_word_, word.size());
    whole_words_.emplace(std::move(word), static_cast<TokenId>(i));
  }
}

void ByteBpe::encode(std::string_view text, std::vector<TokenId>& ids) const {
  const Chars chars(text);
  Merger merger;
  std::uint32_t first = 0;
  for (const std::uint32_t last : cut(*pre_, chars)) {
    encode_word(text.substr(chars.start[first], chars.start[last] - chars.start[first]), merger, ids);
    first = last;
  }
}

void ByteBpe::encode_word(std::string_view word, Merger& merger, std::vector<TokenId>& ids) const {
  if (!whole_words_.empty() && word.size() <= longest_word_) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  std::vector<MergeSymbol>& symbols = merger.symbols();
  split(word, symbols);
  if (symbols.empty()) return;
  merger.run([this](const MergeSymbol& left, const MergeSymbol& right) { return merges_.find(left.id, right.id); });
  for (std::int32_t i = 0; i >= 0; i = symbols[i].next) {
    if (symbols[i].id >= 0) ids.push_back(symbols[i].id);
  }
}

// One symbol per byte.
void ByteBpe::split(std::string_view word, std::vector<MergeSymbol>& symbols) const {
  symbols.clear();
  const auto push = [&](char c) {
    symbols.push_back({.id = byte_token_[static_cast<unsigned char>(c)], .begin = 0, .size = 1});
  };
  for (std::size_t position = 0; position < word.size();) {
    const Utf8Char next = decode_utf8(word, position);
    const auto lead = static_cast<unsigned char>(word[position]);
    if (!next.valid && (!has_token(lead) || stands_for_text_[lead])) {
      for (const char c : kReplacementBytes) push(c);
    } else {
      for (const char c : word.substr(position, next.bytes)) push(c);
    }
    position += next.bytes;
  }
}

}  // namespace conclave
