#include "text/special_names.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <set>
#include <string_view>
#include <unordered_map>

namespace conclave {
namespace {

using Names = std::initializer_list<std::string_view>;
using TokenIds = std::unordered_map<std::string_view, TokenId>;

constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};

constexpr std::string_view kEndOfTurnNames[] = {
    "<|eot_id|>",    "<|im_end|>", "<|end|>", "<end_of_turn>",      "<|end_of_text|>",
    "<EOT>",         "_<EOT>",     "[EOT]",   "<end_of_utterance>", "<｜end▁of▁sentence｜>",
    "<|endoftext|>",
};

class Settler {
 public:
  explicit Settler(Vocabulary& vocabulary) : vocabulary_(vocabulary) {
    if (vocabulary.types.empty()) vocabulary.types.assign(vocabulary.tokens.size(), TokenType::normal);
    for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      const std::string_view token = vocabulary.tokens[i];
      if (looks_special(token)) ids_.emplace(token, static_cast<TokenId>(i));
    }
  }

  void set_type(std::string_view name, TokenType type) {
    if (const auto id = find(name)) vocabulary_.types[*id] = type;
  }

  // Where `id` is not set, the first of `names` that is a token; which is then a control token.
  void find_id(std::optional<TokenId>& id, Names names) {
    for (const std::string_view name : names) {
      if (id) return;
      id = find(name);
      set_type(name, TokenType::control);
    }
  }

  std::optional<TokenId> find(std::string_view name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  // Every name here starts like one of these: most tokens need no look-up.
  static bool looks_special(std::string_view token) {
    return token.starts_with('<') || token.starts_with('[') || token.starts_with("_<") || token.starts_with("▁<");
  }

  Vocabulary& vocabulary_;
  TokenIds ids_;
};

}  // namespace

std::vector<TokenId> settle_special_tokens(Vocabulary& vocabulary) {
  Settler settler(vocabulary);
  SpecialIds& special = vocabulary.special;
  if (!special.eot) {
    for (const std::string_view name : kEndOfTurnNames) {
      if (!special.eot) special.eot = settler.find(name);
    }
  }
  settler.find_id(special.eom, {"<|eom_id|>"});
  settler.find_id(special.fim_prefix, {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>",
                                       "▁<PRE>", "<|code_prefix|>", "<|prefix|>"});
  settler.find_id(special.fim_suffix, {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>",
                                       "▁<SUF>", "<|code_suffix|>", "<|suffix|>"});
  settler.find_id(special.fim_middle, {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>",
                                       "▁<MID>", "<|code_middle|>", "<|middle|>"});
  settler.find_id(special.fim_pad, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"});
  settler.find_id(special.fim_repository, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"});
  settler.find_id(special.fim_separator, {"<|file_sep|>"});

  std::set<TokenId> ends;
  for (const std::string_view name : kEndNames) {
    if (const auto id = settler.find(name)) ends.insert(*id);
    settler.set_type(name, TokenType::control);
  }
  for (const std::string_view name : {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}) {
    settler.set_type(name, TokenType::user_defined);
  }
  for (const auto& id :
       {special.eos, special.eot, special.eom, special.fim_pad, special.fim_repository, special.fim_separator}) {
    if (id) ends.insert(*id);
  }
  // Where a model ends its turns with other tokens, these only end a part of one.
  const auto has = [&](std::string_view name) {
    const auto id = settler.find(name);
    return id && ends.count(*id) > 0;
  };
  const bool has_call = has("<|call|>") || has("<|calls|>");
  if (has("<|end|>") && has_call && (has("<|return|>") || has("<|flush|>"))) {
    ends.erase(*settler.find("<|end|>"));
    settler.set_type("<|end|>", TokenType::user_defined);
  }
  if (has("</s>") && has("<|tool_response>")) {
    ends.erase(*settler.find("</s>"));
    settler.set_type("</s>", TokenType::normal);
  }
  return {ends.begin(), ends.end()};
}

}  // namespace conclave
