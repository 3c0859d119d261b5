// Text to token ids and back.
//
// What comes out of encode() is, without special tokens, what another engine of this file format gives for the same text
// and file. Beyond valid UTF-8 this one is stricter about coming back: decode(encode(bytes)) == bytes for any bytes, as
// long as the vocabulary has a token for each (uncovered_bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace conclave {

struct EncodeOptions {
  bool add_special = false;    // the tokens that the model wants before and after a text: begin, end
  bool parse_special = false;  // control tokens that are written out in the text become themselves; else they stay text
};

// A part of a text. What a program wrote itself may hold control tokens; what a user typed must not.
struct TextPiece {
  std::string_view text;
  bool parse_special = false;
};

struct DecodeOptions {
  bool show_special = false;  // control tokens as they are written; else they are left out
  bool continues = false;     // the ids go on after others: a space at their start belongs to the text
};

inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 29;  // symbols are counted in 31 bits, up to 3 a byte

class Tokenizer {
 public:
  // Throws Error(bad_file) for a vocabulary that no tokenizer can be made of.
  explicit Tokenizer(Vocabulary vocabulary);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Throws Error(invalid_argument) for a text of more than kMaxTextBytes. O(n log n) in its length.
  std::vector<TokenId> encode(std::string_view text, EncodeOptions options = {}) const;
  // The pieces put together are one text, and cut as one: a word may go on from piece to piece. A control token is found
  // only where it lies wholly in neighbouring pieces with parse_special.
  std::vector<TokenId> encode(std::span<const TextPiece> pieces, bool add_special = false) const;
  // How many bytes of `text` no token can stand for. They get lost, or become the unknown token.
  std::size_t uncovered_bytes(std::string_view text) const;
  bool covers_all_bytes() const;

  // Throws Error(invalid_argument) for an id that is none.
  std::string decode(std::span<const TokenId> ids, DecodeOptions options = {}) const;
  // The bytes of one token, control tokens as they are written. Any bytes: one character may be several tokens.
  std::string_view piece(TokenId id) const;
  std::string_view token(TokenId id) const;  // as the vocabulary has it

  TokenId size() const;  // ids are 0 to size() - 1
  VocabularyKind kind() const;
  const SpecialIds& special() const;
  bool adds_bos() const;
  bool adds_eos() const;
  bool adds_space_prefix() const;
  bool is_control(TokenId id) const;  // or unknown: no text stands for it
  bool is_special(TokenId id) const;  // control, unknown or user-defined
  bool is_end(TokenId id) const;      // the model has nothing more to say after it
  std::span<const TokenId> end_ids() const;
  std::optional<TokenId> find(std::string_view token) const;  // by token(id)

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

// Where a text is while its ids come one by one.
class Decoder {
 public:
  explicit Decoder(const Tokenizer& tokenizer, DecodeOptions options = {});
  void append(TokenId id, std::string& out);

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  bool drop_space_;  // the next piece starts with the space that encode() put before it
};

}  // namespace conclave
