// What a tokenizer is made of, as plain data: whoever reads a file fills it in and has checked it (every list of one
// length, ids in range, tokens that are UTF-8 and unique unless empty).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace conclave {

using TokenId = std::int32_t;

enum class VocabularyKind : std::uint8_t {
  byte_bpe,       // tokens are written in an alphabet with one printable character per byte; merges have ranks
  sentencepiece,  // tokens are text with U+2581 for a space; the best-scored token is merged first
};

// The numbers are those of model files.
enum class TokenType : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,       // never made from text unless that is asked for
  user_defined = 4,  // found in any text, before anything else
  unused = 5,
  byte = 6,  // <0xNN>
};

struct SpecialIds {
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> eot;  // end of a turn
  std::optional<TokenId> eom;  // end of a message
  std::optional<TokenId> unknown;
  // Of models that fill in the middle of a text.
  std::optional<TokenId> fim_prefix;
  std::optional<TokenId> fim_suffix;
  std::optional<TokenId> fim_middle;
  std::optional<TokenId> fim_pad;
  std::optional<TokenId> fim_repository;
  std::optional<TokenId> fim_separator;
};

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::byte_bpe;
  std::string pre = "default";      // of byte BPE: find_pre_tokenizer
  std::vector<std::string> tokens;  // [n_tokens]
  std::vector<TokenType> types;     // [n_tokens], or empty: all normal
  std::vector<float> scores;        // [n_tokens]; SentencePiece
  std::vector<std::string> merges;  // "left right", best first; byte BPE
  SpecialIds special;
  bool add_bos = false;           // before a text, where special tokens are asked for
  bool add_eos = false;           // after it
  bool add_space_prefix = false;  // SentencePiece: a space before each text that starts a line of tokens
};

}  // namespace conclave
