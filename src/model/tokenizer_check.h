// What a file says of its tokenizer, checked: every list there, of one length, and sound in itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"

namespace conclave {

enum class TokenizerKind : std::uint8_t {
  none,           // "none", "no_vocab": the model runs on token ids alone
  byte_bpe,       // "gpt2": byte-level BPE with merges
  sentencepiece,  // "llama": SentencePiece with scores
};

constexpr std::string_view name(TokenizerKind kind) {
  switch (kind) {
    case TokenizerKind::none:
      return "none";
    case TokenizerKind::byte_bpe:
      return "byte_bpe";
    case TokenizerKind::sentencepiece:
      return "sentencepiece";
  }
  return "?";
}

struct SpecialToken {
  std::string_view name;  // "bos", "eos", "padding", ...: the key without its prefix and "_token_id"
  std::int64_t id;
};

// Views into the gguf::File, which must outlive this.
struct TokenizerDescription {
  TokenizerKind kind = TokenizerKind::none;
  std::string pre;  // of byte BPE: how text is cut before merging; "default" where the file does not say. Else empty
  std::int64_t n_tokens = 0;  // 0 where kind is none
  std::int64_t n_merges = 0;

  const gguf::Value* tokens = nullptr;       // strings [n_tokens]
  const gguf::Value* token_types = nullptr;  // i32 [n_tokens], 1 to 6; optional
  const gguf::Value* scores = nullptr;       // f32 [n_tokens], finite; always there for SentencePiece
  const gguf::Value* merges = nullptr;       // strings [n_merges] "left right"; byte BPE only

  std::vector<SpecialToken> special;  // in file order, each id below n_tokens (kind none: not checked here)
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;
  std::optional<std::string_view> chat_template;
  std::int64_t n_named_chat_templates = 0;  // tokenizer.chat_template.NAME
};

// The pre-tokenizers of byte BPE that are known by name.
std::span<const std::string_view> known_pre_tokenizers();

// Needs no tensors: files that hold only a vocabulary pass. Throws Error(bad_file) naming the key. Time is linear in
// the size of the lists.
TokenizerDescription describe_tokenizer(const gguf::File& file);

}  // namespace conclave
