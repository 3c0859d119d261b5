#include "convert/hf_tokenizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"
#include "convert/pre_tokenizer.h"
#include "model/tokenizer_check.h"

namespace conclave {
namespace {

enum TokenType : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

constexpr std::string_view kSpaceMark = "\u2581";  // stands for a space in SentencePiece
constexpr std::string_view kByteSpace = "\u0120";  // stands for the byte 32 in byte-level BPE

bool is_byte_token(std::string_view text) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f'); };
  return text.size() == 6 && text.starts_with("<0x") && is_hex(text[3]) && is_hex(text[4]) && text[5] == '>';
}

// Control tokens that some files forget to mark as special.
bool looks_special(std::string_view text) {
  return (text.starts_with("<|") && text.ends_with("|>")) || (text.starts_with("<｜") && text.ends_with("｜>")) ||
         text == "<pad>" || text == "<mask>";
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// A step of that type in a normalizer, pre-tokenizer or decoder that may be a sequence of them; null where there is none.
const Json* find_step(const Json* part, std::string_view list, std::string_view type) {
  if (part == nullptr || !part->is_object()) return nullptr;
  const auto is_it = [&](const Json& step) {
    return step.is_object() && step.contains("type") && step["type"].is_string() && step["type"] == type;
  };
  if (is_it(*part)) return part;
  const auto steps = part->find(list);
  if (steps == part->end() || !steps->is_array()) return nullptr;
  for (const Json& step : *steps) {
    if (is_it(step)) return &step;
  }
  return nullptr;
}

struct AddedToken {
  std::int64_t id;
  std::string text;
  bool special;
};

class TokenizerReader {
 public:
  TokenizerReader(const Checkpoint& checkpoint, const HfModel& model, JsonObject tokenizer, std::string_view pre)
      : model_(model),
        file_(std::move(tokenizer)),
        settings_(checkpoint.find_json("tokenizer_config.json").value_or(JsonObject(Json::object(), ""))),
        config_(checkpoint.config()),
        generation_(checkpoint.find_json("generation_config.json").value_or(JsonObject(Json::object(), ""))),
        pre_(pre),
        template_file_(checkpoint.find_text("chat_template.jinja")) {}

  HfTokenizer run() {
    const auto bpe = file_.find_object("model");
    if (!bpe) file_.missing("model");
    const std::string type = bpe->find_string("type").value_or("BPE");
    if (type != "BPE") {
      fail(ErrorCode::unsupported, "{}: a tokenizer of type {} is not supported; supported: BPE", file_.shown(),
           printable(type));
    }
    read_vocabulary(*bpe);
    if (bpe->find_flag("byte_fallback").value_or(false)) {
      write_sentencepiece(*bpe);
    } else {
      write_byte_bpe(*bpe);
    }
    write_special_tokens();
    write_chat_template();
    return std::move(result_);
  }

 private:
  void add(std::string_view key, gguf::Metadata value) {
    result_.keys.emplace_back(fmt::format("tokenizer.ggml.{}", key), std::move(value));
  }

  [[noreturn]] void refuse(const std::string& text) const { fail(ErrorCode::bad_file, "{}: {}", file_.shown(), text); }

  void place(std::int64_t id, const std::string& text, std::int32_t type) {
    if (id < 0 || id >= model_.config.n_vocab) {
      refuse(fmt::format("token '{}' has the id {}, but vocab_size is {}", printable(text), id, model_.config.n_vocab));
    }
    const auto at = static_cast<std::size_t>(id);
    tokens_[at] = text;
    types_[at] = type;
    ids_.insert_or_assign(text, id);
  }

  static std::int64_t id_of(const Json& value) {
    const bool fits = value.is_number_integer() && value >= 0 && value <= std::numeric_limits<std::int32_t>::max();
    return fits ? value.get<std::int64_t>() : -1;
  }

  std::vector<AddedToken> added_tokens() const {
    std::vector<AddedToken> added;
    const auto append = [&](const JsonObject& file, const Json& token, std::int64_t id) {
      if (!token.is_object() || !token.contains("content") || !token["content"].is_string()) {
        fail(ErrorCode::bad_file, "{}: an added token has no content", file.shown());
      }
      const auto special = token.find("special");
      added.push_back({id, token["content"].get<std::string>(),
                       special != token.end() && special->is_boolean() && special->get<bool>()});
    };
    if (const Json* list = file_.find_array("added_tokens")) {
      for (const Json& token : *list) {
        const bool has_id = token.is_object() && token.contains("id");
        append(file_, token, has_id ? id_of(token["id"]) : -1);
      }
    }
    // The same list a second time, by id; a token that only it has is taken too.
    if (const auto more = settings_.find_object("added_tokens_decoder")) {
      std::unordered_map<std::int64_t, bool> known;
      for (const AddedToken& token : added) known.emplace(token.id, true);
      for (const auto& [key, token] : more->json().items()) {
        std::int64_t id = -1;
        const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
        if (parsed.ec != std::errc{} || parsed.ptr != key.data() + key.size()) id = -1;
        if (known.count(id) == 0) append(*more, token, id);
      }
    }
    return added;
  }

  void read_vocabulary(const JsonObject& bpe) {
    const auto vocabulary = bpe.find_object("vocab");
    if (!vocabulary) bpe.missing("vocab");
    tokens_.resize(static_cast<std::size_t>(model_.config.n_vocab));
    types_.resize(tokens_.size(), kUnused);
    for (const auto& [text, value] : vocabulary->json().items()) {
      const std::int64_t id = id_of(value);
      if (id >= 0 && id < model_.config.n_vocab && types_[static_cast<std::size_t>(id)] != kUnused) {
        refuse(fmt::format("tokens '{}' and '{}' both have the id {}", printable(tokens_[static_cast<std::size_t>(id)]),
                           printable(text), id));
      }
      place(id, text, kNormal);
    }
    for (const AddedToken& token : added_tokens()) {
      const bool control = token.special || looks_special(token.text);
      place(token.id, token.text, control ? kControl : kUserDefined);
    }
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (types_[i] == kUnused) tokens_[i] = fmt::format("[PAD{}]", i);
    }
  }

  // Pairs, or strings with one space between the two.
  std::vector<std::pair<std::string, std::string>> merges(const JsonObject& bpe) const {
    const Json* list = bpe.find_array("merges");
    if (list == nullptr) bpe.missing("merges");
    std::vector<std::pair<std::string, std::string>> result;
    result.reserve(list->size());
    for (const Json& merge : *list) {
      if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
        result.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
        continue;
      }
      const std::string text = merge.is_string() ? merge.get<std::string>() : "";
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) refuse(fmt::format("merge {} is not a pair of tokens", result.size()));
      result.emplace_back(text.substr(0, space), text.substr(space + 1));
    }
    return result;
  }

  void write_byte_bpe(const JsonObject& bpe) {
    add("model", std::string("gpt2"));
    add("pre", pre_tokenizer());
    add("tokens", tokens_);
    add("token_type", types_);
    std::vector<std::string> lines;
    for (const auto& [left, right] : merges(bpe)) {
      lines.push_back(replaced(left, " ", kByteSpace) + " " + replaced(right, " ", kByteSpace));
    }
    add("merges", std::move(lines));
  }

  std::string pre_tokenizer() const {
    if (!pre_.empty()) return pre_;
    const Json* steps = file_.find("pre_tokenizer");
    const auto name = steps == nullptr ? std::nullopt : recognize_pre_tokenizer(*steps);
    if (!name) {
      fail(ErrorCode::unsupported,
           "{}: its pre_tokenizer is none that is known by name; say with --pre which it is, if it is one of: {}",
           file_.shown(), fmt::join(known_pre_tokenizers(), ", "));
    }
    // These cut as GPT-2 does, and have a name of their own.
    if (*name == "gpt-2" && model_.family->architecture == "olmoe") return "olmo";
    return std::string(*name);
  }

  // SentencePiece joins the two neighbours whose piece has the best score. A piece gets the score of its first merge:
  // 0, -1, -2, ..., as tokenizer.model files have it; what no merge makes comes after.
  void write_sentencepiece(const JsonObject& bpe) {
    std::unordered_map<std::string, float> rank;
    for (const auto& [left, right] : merges(bpe)) rank.emplace(left + right, static_cast<float>(rank.size()));
    const auto unknown = bpe.find_string("unk_token");
    std::vector<float> scores(tokens_.size());
    auto next = static_cast<float>(rank.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (unknown && tokens_[i] == *unknown) types_[i] = kUnknown;
      if (is_byte_token(tokens_[i]) && types_[i] == kNormal) types_[i] = kByte;
      if (types_[i] == kUserDefined) tokens_[i] = replaced(tokens_[i], kSpaceMark, " ");
      if (types_[i] != kNormal) continue;
      const auto found = rank.find(tokens_[i]);
      scores[i] = found != rank.end() ? -found->second : -next++;
    }
    add("model", std::string("llama"));
    add("pre", std::string("default"));
    add("tokens", tokens_);
    add("scores", std::move(scores));
    add("token_type", types_);
    add("add_space_prefix", settings_.find_flag("add_prefix_space").value_or(puts_space_in_front()));
  }

  bool puts_space_in_front() const {
    if (find_step(file_.find("normalizer"), "normalizers", "Prepend") != nullptr) return true;
    const Json* metaspace = find_step(file_.find("pre_tokenizer"), "pretokenizers", "Metaspace");
    if (metaspace == nullptr) return false;
    const auto scheme = metaspace->find("prepend_scheme");
    return scheme == metaspace->end() || !scheme->is_string() || *scheme != "never";
  }

  // The id by text from tokenizer_config.json, else by number from the others.
  std::optional<std::int64_t> special_id(const std::string& kind) const {
    if (const auto text = special_text(kind)) {
      if (const auto found = ids_.find(*text); found != ids_.end()) return found->second;
    }
    for (const JsonObject* file : {&config_, &generation_}) {
      const std::vector<std::int64_t> listed = listed_ids(*file, kind + "_token_id");
      if (!listed.empty()) return listed.front();
    }
    return std::nullopt;
  }

  std::optional<std::string> special_text(const std::string& kind) const {
    const Json* value = settings_.find(kind + "_token");
    if (value == nullptr) return std::nullopt;
    if (value->is_object() && value->contains("content")) value = &(*value)["content"];
    if (!value->is_string()) return std::nullopt;
    return value->get<std::string>();
  }

  // One id or several; those past the vocabulary are defaults of a config that nobody meant.
  std::vector<std::int64_t> listed_ids(const JsonObject& file, const std::string& key) const {
    const Json* value = file.find(key);
    if (value == nullptr) return {};
    std::vector<std::int64_t> ids;
    const auto append = [&](const Json& item) {
      const std::int64_t id = id_of(item);
      if (id >= 0 && id < model_.config.n_vocab) ids.push_back(id);
    };
    if (value->is_array()) {
      for (const Json& item : *value) append(item);
    } else {
      append(*value);
    }
    return ids;
  }

  void write_special_tokens() {
    struct Kind {
      const char* hf;
      const char* gguf;
    };
    constexpr Kind kKinds[] = {{"bos", "bos"},     {"eos", "eos"}, {"unk", "unknown"}, {"sep", "seperator"},
                               {"pad", "padding"}, {"cls", "cls"}, {"mask", "mask"}};
    for (const Kind& kind : kKinds) {
      if (const auto id = special_id(kind.hf)) {
        add(fmt::format("{}_token_id", kind.gguf), static_cast<std::uint32_t>(*id));
      }
    }
    // Other tokens that end a text, where generation has several.
    std::vector<std::int64_t> ends = listed_ids(generation_, "eos_token_id");
    std::erase(ends, special_id("eos").value_or(-1));
    constexpr std::array kOtherEnds = {"eot_token_id", "eom_token_id"};
    for (std::size_t i = 0; i < std::min(ends.size(), kOtherEnds.size()); ++i) {
      add(kOtherEnds[i], static_cast<std::uint32_t>(ends[i]));
    }
    add("add_bos_token", settings_.find_flag("add_bos_token").value_or(template_has("bos", true)));
    add("add_eos_token", settings_.find_flag("add_eos_token").value_or(template_has("eos", false)));
  }

  // Whether the post-processor puts the special token of that kind at the front, or at the end, of a single text.
  bool template_has(const std::string& kind, bool front) const {
    const auto id = special_id(kind);
    const Json* step = find_step(file_.find("post_processor"), "processors", "TemplateProcessing");
    if (!id || step == nullptr) return false;
    const auto single = step->find("single");
    if (single == step->end() || !single->is_array() || single->size() < 2) return false;
    const Json& item = front ? single->front() : single->back();
    if (!item.is_object() || !item.contains("SpecialToken") || !item["SpecialToken"].is_object()) return false;
    const auto text = item["SpecialToken"].find("id");
    return text != item["SpecialToken"].end() && text->is_string() &&
           text->get<std::string>() == tokens_[static_cast<std::size_t>(*id)];
  }

  void write_chat_template() {
    const Json* held = settings_.find("chat_template");
    if (template_file_) {
      result_.keys.emplace_back("tokenizer.chat_template", *template_file_);
    } else if (held != nullptr && held->is_string()) {
      result_.keys.emplace_back("tokenizer.chat_template", held->get<std::string>());
    } else if (held != nullptr && held->is_array()) {
      write_named_templates(*held);
    } else if (held != nullptr) {
      settings_.wrong("chat_template", "a string or a list of named templates");
    }
  }

  void write_named_templates(const Json& list) {
    std::vector<std::string> names;
    for (const Json& item : list) {
      const auto text = [&](const char* key) {
        return item.is_object() && item.contains(key) && item[key].is_string() ? item[key].get<std::string>() : "";
      };
      const std::string name = text("name");
      if (name.empty() || !is_printable_utf8(name) || std::find(names.begin(), names.end(), name) != names.end() ||
          names.size() == kMaxTemplates) {
        settings_.wrong("chat_template", "a string or a short list of named templates");
      }
      const std::string key = name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name;
      result_.keys.emplace_back(key, text("template"));
      names.push_back(name);
    }
    std::erase(names, "default");
    if (!names.empty()) result_.keys.emplace_back("tokenizer.chat_templates", std::move(names));
  }

  static constexpr std::size_t kMaxTemplates = 64;

  const HfModel& model_;
  JsonObject file_;      // tokenizer.json
  JsonObject settings_;  // tokenizer_config.json
  const JsonObject& config_;
  JsonObject generation_;  // generation_config.json
  std::string pre_;
  std::optional<std::string> template_file_;

  std::vector<std::string> tokens_;  // [n_vocab]
  std::vector<std::int32_t> types_;  // [n_vocab]
  std::unordered_map<std::string, std::int64_t> ids_;
  HfTokenizer result_;
};

}  // namespace

HfTokenizer read_hf_tokenizer(const Checkpoint& checkpoint, const HfModel& model, std::string_view pre) {
  auto tokenizer = checkpoint.find_json("tokenizer.json");
  if (!tokenizer) {
    HfTokenizer none;
    none.keys.emplace_back("tokenizer.ggml.model", std::string("none"));
    none.notes.emplace_back("there is no tokenizer.json: the model will run on token ids alone");
    return none;
  }
  return TokenizerReader(checkpoint, model, std::move(*tokenizer), pre).run();
}

}  // namespace conclave
