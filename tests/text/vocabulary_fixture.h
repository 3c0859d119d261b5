// Small vocabularies of both kinds. Ids are looked up by text, so tests do not depend on the order.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace conclave::testing {

// `text` as byte-level BPE writes it.
inline std::string in_alphabet(std::string_view text) {
  std::string out;
  for (const char c : text) append_utf8(byte_to_char(static_cast<unsigned char>(c)), out);
  return out;
}

inline TokenId add(Vocabulary& v, const std::string& token, TokenType type = TokenType::normal, float score = 0.0F) {
  v.tokens.push_back(token);
  v.types.push_back(type);
  if (v.kind == VocabularyKind::sentencepiece) v.scores.push_back(score);
  return static_cast<TokenId>(v.tokens.size()) - 1;
}

// All bytes, then a token for each merge ("left|right", plain bytes).
inline Vocabulary bpe_vocabulary(const std::string& pre, const std::vector<std::string>& merges) {
  Vocabulary v;
  v.kind = VocabularyKind::byte_bpe;
  v.pre = pre;
  for (int byte = 0; byte < 256; ++byte) add(v, in_alphabet(std::string(1, static_cast<char>(byte))));
  for (const std::string& merge : merges) {
    const std::size_t bar = merge.find('|');
    const std::string left = in_alphabet(merge.substr(0, bar));
    const std::string right = in_alphabet(merge.substr(bar + 1));
    if (std::find(v.tokens.begin(), v.tokens.end(), left + right) == v.tokens.end()) add(v, left + right);
    v.merges.push_back(left + " " + right);
  }
  return v;
}

// <unk>, <s>, </s>, the bytes unless told otherwise, then `pieces` with their scores; '_' stands for U+2581.
inline Vocabulary piece_vocabulary(const std::vector<std::pair<std::string, float>>& pieces, bool bytes = true) {
  Vocabulary v;
  v.kind = VocabularyKind::sentencepiece;
  v.special.unknown = add(v, "<unk>", TokenType::unknown);
  v.special.bos = add(v, "<s>", TokenType::control);
  v.special.eos = add(v, "</s>", TokenType::control);
  for (int byte = 0; bytes && byte < 256; ++byte) {
    char text[7];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    add(v, text, TokenType::byte);
  }
  for (const auto& [piece, score] : pieces) {
    std::string token;
    for (const char c : piece) token += c == '_' ? "\xE2\x96\x81" : std::string(1, c);
    add(v, token, TokenType::normal, score);
  }
  v.add_bos = true;
  v.add_space_prefix = true;
  return v;
}

// What each id stands for, bytes as they are.
inline std::vector<std::string> pieces_of(const Tokenizer& t, const std::vector<TokenId>& ids) {
  std::vector<std::string> out;
  for (const TokenId id : ids) out.emplace_back(t.piece(id));
  return out;
}

using Strings = std::vector<std::string>;

// Bytes of every sort: valid text of many scripts, all single bytes, and what UTF-8 forbids.
inline Strings awkward_texts() {
  Strings texts = {"",
                   " ",
                   "  two",
                   "a\n\n b\r\n\tc ",
                   "caf\xC3\xA9 na\xC3\xAFve",
                   "\xE4\xBD\xA0\xE5\xA5\xBD \xEA\xB0\x80 \xF0\x9F\x98\x80\xEF\xB8\x8F",
                   "don't WE'LL 'tis",
                   "1234567 \xD9\xA3\xD9\xA4 \xC2\xBD",
                   "\xE2\x96\x81mark\xE2\x96\x81",
                   std::string("nul\0nul", 7),
                   "<s></s><unk><0x0A>",
                   "\xC0\xAF\xED\xA0\x80\xF4\x90\x80\x80",  // overlong, surrogate, past the end
                   "\xE2\x82",                              // cut short
                   "\x80\xBF \xFF\xFE x"};
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  texts.push_back(all);
  return texts;
}

}  // namespace conclave::testing
