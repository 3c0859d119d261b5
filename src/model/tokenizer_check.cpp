#include "model/tokenizer_check.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/fail.h"
#include "base/file_text.h"
#include "model/config_reader.h"
#include "model/keys.h"

namespace conclave {
namespace {

constexpr std::string_view kTokenizerPrefix = "tokenizer.ggml";
constexpr std::int64_t kTypeByte = 6;  // SentencePiece's <0xNN>

constexpr std::string_view kPreTokenizers[] = {
    "default",   "gpt-2",  "qwen2",  "llama-bpe", "deepseek-llm", "deepseek-coder",
    "starcoder", "refact", "falcon", "olmo",      "dbrx",
};

// Other names that files have for some of them.
struct PreTokenizerAlias {
  std::string_view alias;
  std::string_view name;
};
constexpr PreTokenizerAlias kPreTokenizerAliases[] = {
    {"llama3", "llama-bpe"},  {"llama-v3", "llama-bpe"},
    {"falcon3", "llama-bpe"}, {"falcon-h1", "llama-bpe"},
    {"pixtral", "llama-bpe"}, {"midm-2.0", "llama-bpe"},
    {"lfm2", "llama-bpe"},    {"deepseek-r1-qwen", "qwen2"},
    {"stablelm2", "qwen2"},   {"megrez", "qwen2"},
    {"hunyuan", "qwen2"},     {"grok-2", "qwen2"},
    {"kormo", "qwen2"},       {"solar-open", "qwen2"},
    {"smaug-bpe", "dbrx"},    {"glm4", "dbrx"},
    {"chatglm-bpe", "dbrx"},  {"mpt", "gpt-2"},
    {"phi-2", "gpt-2"},       {"jais", "gpt-2"},
    {"gigachat", "gpt-2"},    {"exaone4", "gpt-2"},
    {"trillion", "gpt-2"},    {"mellum", "gpt-2"},
    {"a.x-4.0", "gpt-2"},     {"command-r", "starcoder"},
    {"smollm", "starcoder"},  {"codeshell", "starcoder"},
    {"exaone", "starcoder"},  {"minerva-7b", "starcoder"},
};

using TokenIds = std::unordered_map<std::string_view, std::uint64_t>;

TokenizerKind read_kind(const Keys& keys) {
  const std::string_view model = keys.string("model");
  if (model == "gpt2") return TokenizerKind::byte_bpe;
  if (model == "llama") return TokenizerKind::sentencepiece;
  if (model == "none" || model == "no_vocab") return TokenizerKind::none;
  fail(ErrorCode::bad_file, "{} is '{}', supported: gpt2, llama, none, no_vocab", keys.full("model"), printable(model));
}

void check_length(const Keys& keys, std::string_view key, const gguf::Value& list, std::int64_t n_tokens) {
  if (list.size() == static_cast<std::uint64_t>(n_tokens)) return;
  fail(ErrorCode::bad_file, "{} has {} values for {} tokens", keys.full(key), list.size(), n_tokens);
}

// Every token once. Empty tokens are let through: some vocabularies have several as padding, and no text ever matches
// one.
TokenIds index_tokens(const Keys& keys, const gguf::Value& tokens) {
  TokenIds ids;
  ids.reserve(tokens.size());
  for (std::uint64_t i = 0; i < tokens.size(); ++i) {
    const std::string_view token = tokens.string_at(i).value_or("");
    if (token.empty()) continue;
    if (!is_utf8(token)) {
      fail(ErrorCode::bad_file, "{}: token {} is '{}', which is not UTF-8", keys.full("tokens"), i, printable(token));
    }
    const auto [first, is_new] = ids.emplace(token, i);
    if (!is_new) {
      fail(ErrorCode::bad_file, "{}: tokens {} and {} are both '{}'", keys.full("tokens"), first->second, i,
           printable(token));
    }
  }
  return ids;
}

void check_token_types(const Keys& keys, const TokenizerDescription& t) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f'); };
  for (std::uint64_t i = 0; i < t.token_types->size(); ++i) {
    const std::int64_t type = t.token_types->i64_at(i).value_or(0);
    if (type < 1 || type > 6) {
      fail(ErrorCode::bad_file, "{}: token {} has the type {}, must be 1 to 6", keys.full("token_type"), i, type);
    }
    if (type != kTypeByte || t.kind != TokenizerKind::sentencepiece) continue;
    const std::string_view token = t.tokens->string_at(i).value_or("");
    if (token.size() != 6 || !token.starts_with("<0x") || !is_hex(token[3]) || !is_hex(token[4]) || token[5] != '>') {
      fail(ErrorCode::bad_file, "{}: token {} is of the byte type but is '{}', must be like <0x0A>",
           keys.full("token_type"), i, printable(token));
    }
  }
}

void check_scores(const Keys& keys, const gguf::Value& scores) {
  for (std::uint64_t i = 0; i < scores.size(); ++i) {
    const double score = scores.float_at(i).value_or(NAN);
    if (!std::isfinite(score)) {
      fail(ErrorCode::bad_file, "{}: the score of token {} is {}, must be finite", keys.full("scores"), i, score);
    }
  }
}

void check_merges(const Keys& keys, const gguf::Value& merges, const TokenIds& ids) {
  std::string joined;
  for (std::uint64_t i = 0; i < merges.size(); ++i) {
    const std::string_view merge = merges.string_at(i).value_or("");
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      fail(ErrorCode::bad_file, "{}: merge {} is '{}', must be two tokens with one space between", keys.full("merges"),
           i, printable(merge));
    }
    joined.assign(merge.substr(0, space)).append(merge.substr(space + 1));
    for (const std::string_view part : {merge.substr(0, space), merge.substr(space + 1), std::string_view(joined)}) {
      if (ids.find(part) == ids.end()) {
        fail(ErrorCode::bad_file, "{}: merge {} is '{}', but '{}' is no token", keys.full("merges"), i,
             printable(merge), printable(part));
      }
    }
  }
}

void read_lists(const Keys& keys, TokenizerDescription& t) {
  t.tokens = keys.find_array("tokens", gguf::ValueType::string);
  if (t.tokens == nullptr) keys.missing("tokens");
  if (t.tokens->size() == 0 || t.tokens->size() > static_cast<std::uint64_t>(kMaxVocab)) {
    fail(ErrorCode::bad_file, "{} has {} tokens, must have 1 to {}", keys.full("tokens"), t.tokens->size(), kMaxVocab);
  }
  t.n_tokens = static_cast<std::int64_t>(t.tokens->size());
  const TokenIds ids = index_tokens(keys, *t.tokens);

  t.token_types = keys.find_array("token_type", gguf::ValueType::i32);
  if (t.token_types != nullptr) {
    check_length(keys, "token_type", *t.token_types, t.n_tokens);
    check_token_types(keys, t);
  }
  t.scores = keys.find_array("scores", gguf::ValueType::f32);
  if (t.scores != nullptr) {
    check_length(keys, "scores", *t.scores, t.n_tokens);
    check_scores(keys, *t.scores);
  } else if (t.kind == TokenizerKind::sentencepiece) {
    keys.missing("scores");
  }
  // SentencePiece files from some converters carry merges that nothing uses.
  const gguf::Value* merges = keys.find_array("merges", gguf::ValueType::string);
  if (t.kind != TokenizerKind::byte_bpe) return;
  if (merges == nullptr) keys.missing("merges");
  check_merges(keys, *merges, ids);
  t.merges = merges;
  t.n_merges = static_cast<std::int64_t>(merges->size());
}

void read_special_tokens(const gguf::File& file, const Keys& keys, TokenizerDescription& t) {
  constexpr std::string_view kSuffix = "_token_id";
  const std::string prefix = keys.full("");
  const std::int64_t last = t.kind == TokenizerKind::none ? kMaxVocab - 1 : t.n_tokens - 1;
  for (const gguf::KeyValue& item : file.keys()) {
    if (!item.key.starts_with(prefix) || !item.key.ends_with(kSuffix)) continue;
    if (item.key.size() <= prefix.size() + kSuffix.size()) continue;
    const std::string_view key = item.key.substr(prefix.size());
    t.special.push_back({.name = key.substr(0, key.size() - kSuffix.size()), .id = *keys.find_integer(key, {0, last})});
  }
}

void read_chat_templates(const gguf::File& file, TokenizerDescription& t) {
  const Keys keys(file, "tokenizer");
  t.chat_template = keys.find_string("chat_template");
  keys.find_array("chat_templates", gguf::ValueType::string);
  constexpr std::string_view kNamed = "chat_template.";
  const std::string prefix = keys.full(kNamed);
  for (const gguf::KeyValue& item : file.keys()) {
    if (!item.key.starts_with(prefix)) continue;
    keys.find_string(item.key.substr(prefix.size() - kNamed.size()));
    ++t.n_named_chat_templates;
  }
}

}  // namespace

std::span<const std::string_view> known_pre_tokenizers() {
  return kPreTokenizers;
}

TokenizerDescription describe_tokenizer(const gguf::File& file) {
  const Keys keys(file, kTokenizerPrefix);
  TokenizerDescription t;
  t.kind = read_kind(keys);
  std::string_view pre = keys.find_string("pre").value_or("default");
  for (const auto& [alias, name] : kPreTokenizerAliases) pre = pre == alias ? name : pre;
  if (t.kind == TokenizerKind::byte_bpe) {
    if (std::find(std::begin(kPreTokenizers), std::end(kPreTokenizers), pre) == std::end(kPreTokenizers)) {
      fail(ErrorCode::bad_file, "{} is '{}', supported: {}", keys.full("pre"), printable(pre),
           fmt::join(kPreTokenizers, ", "));
    }
    t.pre = pre;
  }
  if (t.kind != TokenizerKind::none) read_lists(keys, t);
  read_special_tokens(file, keys, t);
  t.add_bos = keys.find_flag("add_bos_token");
  t.add_eos = keys.find_flag("add_eos_token");
  t.add_space_prefix = keys.find_flag("add_space_prefix");
  keys.find_flag("add_sep_token");
  keys.find_flag("remove_extra_whitespaces");
  read_chat_templates(file, t);
  return t;
}

}  // namespace conclave
