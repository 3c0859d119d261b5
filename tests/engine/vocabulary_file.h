// A Vocabulary as the file that it would come from: key-values alone, no tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/model_fixture.h"
#include "text/vocabulary.h"

namespace conclave::testing {

inline ModelFixture vocabulary_file(const Vocabulary& v) {
  const bool bpe = v.kind == VocabularyKind::byte_bpe;
  ModelFixture m;
  m.set("general.architecture", std::string("qwen3moe"));
  m.set("tokenizer.ggml.model", std::string(bpe ? "gpt2" : "llama"));
  m.set("tokenizer.ggml.tokens", v.tokens);
  std::vector<std::int32_t> types;
  for (const TokenType type : v.types) types.push_back(static_cast<std::int32_t>(type));
  m.set("tokenizer.ggml.token_type", types);
  if (bpe) {
    m.set("tokenizer.ggml.pre", v.pre);
    m.set("tokenizer.ggml.merges", v.merges);
  } else {
    m.set("tokenizer.ggml.scores", v.scores);
  }
  const auto set_id = [&](const char* key, const std::optional<TokenId>& id) {
    if (id) m.set(key, static_cast<std::uint32_t>(*id));
  };
  set_id("tokenizer.ggml.bos_token_id", v.special.bos);
  set_id("tokenizer.ggml.eos_token_id", v.special.eos);
  return m;
}

}  // namespace conclave::testing
