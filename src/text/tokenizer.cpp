#include "text/tokenizer.h"

#include <algorithm>
#include <bitset>
#include <utility>
#include <variant>

#include "base/fail.h"
#include "base/file_text.h"
#include "text/byte_alphabet.h"
#include "text/byte_bpe.h"
#include "text/sentencepiece.h"
#include "text/special_names.h"
#include "text/special_tokens.h"
#include "text/token_index.h"

namespace conclave {
namespace {

std::string with_spaces(std::string_view token) {
  std::string text;
  for (std::size_t position = 0; position < token.size();) {
    const bool mark = token.substr(position).starts_with(kSpaceMark);
    text.push_back(mark ? ' ' : token[position]);
    position += mark ? kSpaceMark.size() : 1;
  }
  return text;
}

// <0x0A> and the like; nothing where it is not written so.
std::optional<char> byte_of(std::string_view token) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  if (digit(token[3]) < 0 || digit(token[4]) < 0) return std::nullopt;
  return static_cast<char>(digit(token[3]) * 16 + digit(token[4]));
}

std::string piece_of(const Vocabulary& vocabulary, std::size_t id) {
  const std::string& token = vocabulary.tokens[id];
  switch (vocabulary.types[id]) {
    case TokenType::control:
    case TokenType::unknown:
    case TokenType::user_defined:
      return token;
    case TokenType::byte:
      if (const auto byte = byte_of(token)) return {*byte};
      break;
    case TokenType::normal:
    case TokenType::unused:
      break;
  }
  return vocabulary.kind == VocabularyKind::byte_bpe ? bytes_of_token(token) : with_spaces(token);
}

void check(const Vocabulary& vocabulary) {
  const std::size_t count = vocabulary.tokens.size();
  const auto right = [count](const auto& list) { return list.size() == count; };
  const bool ok = count > 0 && count <= std::size_t{INT32_MAX} &&
                  (vocabulary.types.empty() || right(vocabulary.types)) &&
                  (vocabulary.kind != VocabularyKind::sentencepiece || right(vocabulary.scores));
  if (!ok) {
    fail(ErrorCode::bad_file, "a vocabulary of {} tokens with {} types and {} scores", count, vocabulary.types.size(),
         vocabulary.scores.size());
  }
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(Vocabulary v)
      : vocabulary(std::move(v)),
        ends(settle_special_tokens(vocabulary)),
        index(vocabulary),
        special_tokens(vocabulary) {
    const auto take = [this](const auto& made) {
      for (unsigned byte = 0; byte < 256; ++byte) covered[byte] = made.has_token(static_cast<unsigned char>(byte));
    };
    if (vocabulary.kind == VocabularyKind::byte_bpe) {
      take(encoder.emplace<ByteBpe>(vocabulary, index));
      vocabulary.merges = {};  // megabytes that nobody asks for again
    } else {
      take(encoder.emplace<SentencePiece>(vocabulary, index));
    }
    pieces.reserve(vocabulary.tokens.size());
    for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) pieces.push_back(piece_of(vocabulary, i));
  }

  std::size_t checked(TokenId id) const {
    if (id < 0 || static_cast<std::size_t>(id) >= pieces.size()) {
      fail(ErrorCode::invalid_argument, "token id {} is not in the vocabulary of {} tokens", id, pieces.size());
    }
    return static_cast<std::size_t>(id);
  }
  TokenType type(TokenId id) const { return vocabulary.types[checked(id)]; }

  // A stretch without special tokens.
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const {
    if (text.empty()) return;
    if (const auto* bpe = std::get_if<ByteBpe>(&encoder)) {
      bpe->encode(text, out);
    } else if (const auto* pieces_encoder = std::get_if<SentencePiece>(&encoder)) {
      pieces_encoder->encode(text, vocabulary.add_space_prefix, out);
    }
  }

  void encode(std::string_view text, std::span<const TextRange> trusted, std::vector<TokenId>& out) const {
    std::size_t done = 0;
    for (const SpecialMatch& match : special_tokens.find(text, trusted)) {
      encode_plain(text.substr(done, match.position - done), out);
      out.push_back(match.id);
      done = match.position + vocabulary.tokens[match.id].size();
    }
    encode_plain(text.substr(done), out);
  }

  Vocabulary vocabulary;      // stays where it is: the members below have views of it
  std::vector<TokenId> ends;  // ascending
  TokenIndex index;
  SpecialTokens special_tokens;
  std::variant<std::monostate, ByteBpe, SentencePiece> encoder;
  std::bitset<256> covered;  // bytes that have a token
  std::vector<std::string> pieces;
};

Tokenizer::Tokenizer(Vocabulary vocabulary) {
  check(vocabulary);
  impl_ = std::make_unique<const Impl>(std::move(vocabulary));
}

Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  const TextPiece piece{.text = text, .parse_special = options.parse_special};
  return encode(std::span(&piece, 1), options.add_special);
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextPiece> pieces, bool add_special) const {
  std::size_t bytes = 0;
  for (const TextPiece& piece : pieces) {
    if (piece.text.size() > kMaxTextBytes - bytes) {
      fail(ErrorCode::invalid_argument, "the text is longer than {} bytes", kMaxTextBytes);
    }
    bytes += piece.text.size();
  }
  std::string joined;
  std::vector<TextRange> trusted;
  std::size_t first = 0;
  for (const TextPiece& piece : pieces) {
    const std::size_t last = first + piece.text.size();
    if (pieces.size() > 1) joined.append(piece.text);
    if (piece.parse_special && !piece.text.empty()) {
      if (!trusted.empty() && trusted.back().last == first) {
        trusted.back().last = last;
      } else {
        trusted.push_back({first, last});
      }
    }
    first = last;
  }
  const SpecialIds& ids = impl_->vocabulary.special;
  std::vector<TokenId> out;
  if (add_special && adds_bos()) out.push_back(*ids.bos);
  impl_->encode(pieces.size() == 1 ? pieces[0].text : std::string_view(joined), trusted, out);
  if (add_special && adds_eos()) out.push_back(*ids.eos);
  return out;
}

std::size_t Tokenizer::uncovered_bytes(std::string_view text) const {
  if (covers_all_bytes()) return 0;
  const auto covered = [this](char c) { return impl_->covered[static_cast<unsigned char>(c)]; };
  return text.size() - static_cast<std::size_t>(std::count_if(text.begin(), text.end(), covered));
}

bool Tokenizer::covers_all_bytes() const {
  return impl_->covered.all();
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string out;
  Decoder decoder(*this, options);
  for (const TokenId id : ids) decoder.append(id, out);
  return out;
}

std::string_view Tokenizer::piece(TokenId id) const {
  return impl_->pieces[impl_->checked(id)];
}

std::string_view Tokenizer::token(TokenId id) const {
  return impl_->vocabulary.tokens[impl_->checked(id)];
}

TokenId Tokenizer::size() const {
  return static_cast<TokenId>(impl_->pieces.size());
}

VocabularyKind Tokenizer::kind() const {
  return impl_->vocabulary.kind;
}

const SpecialIds& Tokenizer::special() const {
  return impl_->vocabulary.special;
}

bool Tokenizer::adds_bos() const {
  return impl_->vocabulary.add_bos && impl_->vocabulary.special.bos.has_value();
}

bool Tokenizer::adds_eos() const {
  return impl_->vocabulary.add_eos && impl_->vocabulary.special.eos.has_value();
}

bool Tokenizer::adds_space_prefix() const {
  return impl_->vocabulary.kind == VocabularyKind::sentencepiece && impl_->vocabulary.add_space_prefix;
}

bool Tokenizer::is_control(TokenId id) const {
  const TokenType type = impl_->type(id);
  return type == TokenType::control || type == TokenType::unknown;
}

bool Tokenizer::is_special(TokenId id) const {
  return is_control(id) || impl_->type(id) == TokenType::user_defined;
}

bool Tokenizer::is_end(TokenId id) const {
  return std::binary_search(impl_->ends.begin(), impl_->ends.end(), id);
}

std::span<const TokenId> Tokenizer::end_ids() const {
  return impl_->ends;
}

std::optional<TokenId> Tokenizer::find(std::string_view token) const {
  const TokenId id = impl_->index.find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

Decoder::Decoder(const Tokenizer& tokenizer, DecodeOptions options)
    : tokenizer_(&tokenizer), options_(options), drop_space_(tokenizer.adds_space_prefix() && !options.continues) {}

void Decoder::append(TokenId id, std::string& out) {
  std::string_view piece = tokenizer_->piece(id);
  if (tokenizer_->is_special(id)) {
    if (options_.show_special || !tokenizer_->is_control(id)) out.append(piece);
    // encode() starts anew after it; but for an unknown token that stands for a byte within a text.
    drop_space_ =
        tokenizer_->adds_space_prefix() && (id != tokenizer_->special().unknown || tokenizer_->covers_all_bytes());
    return;
  }
  if (drop_space_ && piece.starts_with(' ')) piece.remove_prefix(1);
  drop_space_ = false;
  out.append(piece);
}

}  // namespace conclave
