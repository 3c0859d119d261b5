// Any bytes as a text, for a small vocabulary of each kind: what is encoded must come back byte for byte, whole and as a
// stream, however it is cut into pieces; and control tokens come only from text that is trusted to hold them.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_text.h"
#include "text/byte_alphabet.h"
#include "text/pre_tokenizer.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"
#include "text/unicode.h"

namespace {

using conclave::TokenId;
using conclave::Tokenizer;
using conclave::TokenType;
using conclave::Vocabulary;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

void add(Vocabulary& v, std::string token, TokenType type, float score = 0.0F) {
  v.tokens.push_back(std::move(token));
  v.types.push_back(type);
  v.scores.push_back(score);
}

void add_special(Vocabulary& v) {
  v.special.bos = static_cast<TokenId>(v.tokens.size());
  add(v, "<s>", TokenType::control);
  v.special.eos = static_cast<TokenId>(v.tokens.size());
  add(v, "</s>", TokenType::control);
  add(v, "<u", TokenType::user_defined);
  add(v, "<user>", TokenType::user_defined);
  add(v, "  ", TokenType::user_defined);
}

Vocabulary byte_bpe(std::string_view pre) {
  Vocabulary v;
  v.kind = conclave::VocabularyKind::byte_bpe;
  v.pre = pre;
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text.clear();
    conclave::append_utf8(conclave::byte_to_char(static_cast<unsigned char>(byte)), text);
    add(v, text, TokenType::normal);
  }
  const std::pair<const char*, const char*> merges[] = {
      {"a", "a"}, {"aa", "aa"}, {"aa", "a"}, {"1", "2"}, {"\xC3\x83", "\xC2\xA9"}};
  for (const auto& [left, right] : merges) {
    add(v, std::string(left) + right, TokenType::normal);
    v.merges.push_back(std::string(left) + " " + right);
  }
  add_special(v);
  return v;
}

Vocabulary pieces(bool space_prefix, bool space_token) {
  Vocabulary v;
  v.kind = conclave::VocabularyKind::sentencepiece;
  v.add_space_prefix = space_prefix;
  add_special(v);
  for (int byte = 0; byte < 256; ++byte) {
    char text[7];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    add(v, text, TokenType::byte);
  }
  if (space_token) add(v, "\xE2\x96\x81", TokenType::normal, -1);
  for (const char* piece : {"a", "aa", "aaa",
                            "\xE2\x96\x81"
                            "a",
                            "\xC3\xA9", "</", "s>", "<s"}) {
    add(v, piece, TokenType::normal, -static_cast<float>(v.tokens.size() % 5));
  }
  return v;
}

const std::vector<Tokenizer>& tokenizers() {
  static const std::vector<Tokenizer> made = [] {
    std::vector<Tokenizer> list;
    for (const conclave::PreTokenizer& pre : conclave::pre_tokenizers()) list.emplace_back(byte_bpe(pre.name));
    list.emplace_back(pieces(true, true));
    list.emplace_back(pieces(false, true));
    list.emplace_back(pieces(true, false));
    return list;
  }();
  return made;
}

void check(const Tokenizer& t, std::string_view text, std::size_t middle) {
  const std::vector<TokenId> plain = t.encode(text);
  for (const TokenId id : plain) require(!t.is_control(id), "plain text has no control tokens");
  require(t.decode(plain) == text, "plain text comes back");
  const std::vector<TokenId> parsed = t.encode(text, {.parse_special = true});
  require(t.decode(parsed, {.show_special = true}) == text, "text with control tokens comes back");

  const conclave::TextPiece parts[] = {{text.substr(0, middle), true}, {text.substr(middle), false}};
  const std::vector<TokenId> mixed = t.encode(parts);
  require(t.decode(mixed, {.show_special = true}) == text, "pieces come back");

  conclave::TextStream stream(t, {.show_special = true});
  std::string streamed;
  for (const TokenId id : parsed) {
    const std::string part = stream.push(id);
    require(!conclave::is_utf8(text) || conclave::is_utf8(part), "a stream is cut between characters");
    streamed += part;
  }
  require(streamed + stream.finish() == text, "a stream has the same bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  check(tokenizers()[data[0] % tokenizers().size()], text, text.empty() ? 0 : data[1] % (text.size() + 1));
  return 0;
}
