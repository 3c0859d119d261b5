#include "engine/vocabulary_reader.h"

#include <string_view>
#include <utility>

#include "base/fail.h"
#include "model/tokenizer_check.h"

namespace conclave {
namespace {

std::vector<std::string> strings(const gguf::Value& list) {
  std::vector<std::string> out;
  out.reserve(list.size());
  for (std::uint64_t i = 0; i < list.size(); ++i) out.emplace_back(list.string_at(i).value_or(""));
  return out;
}

void read_lists(const TokenizerDescription& t, Vocabulary& v) {
  v.tokens = strings(*t.tokens);
  if (t.merges != nullptr) v.merges = strings(*t.merges);
  if (t.token_types != nullptr) {
    v.types.reserve(v.tokens.size());
    for (std::uint64_t i = 0; i < t.token_types->size(); ++i) {
      v.types.push_back(static_cast<TokenType>(t.token_types->i64_at(i).value_or(1)));
    }
  }
  if (t.kind == TokenizerKind::sentencepiece) {
    v.scores.reserve(v.tokens.size());
    for (std::uint64_t i = 0; i < t.scores->size(); ++i) {
      v.scores.push_back(static_cast<float>(t.scores->float_at(i).value_or(0.0)));
    }
  }
}

std::optional<TokenId>* member_of(SpecialIds& ids, std::string_view name) {
  const std::pair<std::string_view, std::optional<TokenId>*> members[] = {
      {"bos", &ids.bos},
      {"eos", &ids.eos},
      {"eot", &ids.eot},
      {"eom", &ids.eom},
      {"unknown", &ids.unknown},
      {"fim_pre", &ids.fim_prefix},
      {"fim_suf", &ids.fim_suffix},
      {"fim_mid", &ids.fim_middle},
      {"fim_pad", &ids.fim_pad},
      {"fim_rep", &ids.fim_repository},
      {"fim_sep", &ids.fim_separator},
      // what older files call them
      {"prefix", &ids.fim_prefix},
      {"suffix", &ids.fim_suffix},
      {"middle", &ids.fim_middle},
  };
  for (const auto& [key, member] : members) {
    if (key == name) return member;
  }
  return nullptr;
}

void read_special_ids(const TokenizerDescription& t, Vocabulary& v) {
  if (t.kind == TokenizerKind::sentencepiece && t.n_tokens > 2) {
    v.special.unknown = 0;
    v.special.bos = 1;
    v.special.eos = 2;
  }
  for (const SpecialToken& token : t.special) {
    if (auto* member = member_of(v.special, token.name)) *member = static_cast<TokenId>(token.id);
  }
}

}  // namespace

std::optional<Vocabulary> read_vocabulary(const gguf::File& file) {
  const TokenizerDescription t = describe_tokenizer(file);
  if (t.kind == TokenizerKind::none) return std::nullopt;
  const bool pieces = t.kind == TokenizerKind::sentencepiece;
  Vocabulary v;
  v.kind = pieces ? VocabularyKind::sentencepiece : VocabularyKind::byte_bpe;
  v.pre = t.pre;
  read_lists(t, v);
  read_special_ids(t, v);
  v.add_bos = t.add_bos.value_or(pieces || t.pre == "llama-bpe");
  v.add_eos = t.add_eos.value_or(false);
  v.add_space_prefix = pieces && t.add_space_prefix.value_or(true);
  return v;
}

Tokenizer read_tokenizer(const gguf::File& file) {
  std::optional<Vocabulary> vocabulary = read_vocabulary(file);
  if (!vocabulary) {
    fail(ErrorCode::bad_file, "the file has no vocabulary (tokenizer.ggml.model is none): it works on token ids alone");
  }
  return Tokenizer(std::move(*vocabulary));
}

}  // namespace conclave
