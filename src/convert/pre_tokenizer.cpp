#include "convert/pre_tokenizer.h"

#include <span>
#include <vector>

namespace conclave {
namespace {

// A step in one line: its type, and what changes the way it cuts.
using Steps = std::vector<std::string>;

const std::string kByteLevel = "ByteLevel";               // maps bytes alone: the steps before it have cut
const std::string kByteLevelCuts = "ByteLevel, cutting";  // cuts as GPT-2 does, too
const std::string kEachDigit = "Digits, each";
const std::string kDigits = "Digits, runs";

std::string split(std::string_view pattern) {
  return "Split " + std::string(pattern);
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

bool flag_of(const Json& object, const char* key, bool otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

// A pattern that says the same in other characters: some files write the line breaks as escapes, some as themselves.
std::string normalized(const std::string& pattern) {
  std::string text;
  for (const char c : pattern) {
    if (c == '\r') {
      text += "\\r";
    } else if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

std::string describe_step(const Json& step) {
  const std::string type = text_of(step, "type");
  if (type == "ByteLevel") {
    if (flag_of(step, "add_prefix_space", false)) return "ByteLevel with a space in front";
    return flag_of(step, "use_regex", true) ? kByteLevelCuts : kByteLevel;
  }
  if (type == "Digits") return flag_of(step, "individual_digits", false) ? kEachDigit : kDigits;
  if (type == "Punctuation") return "Punctuation " + text_of(step, "behavior");
  if (type == "Split") {
    const auto pattern = step.find("pattern");
    const std::string regex = pattern != step.end() && pattern->is_object() ? text_of(*pattern, "Regex") : "";
    // Removed with invert keeps what matches and drops the rest; where the pattern matches everything, as all of these
    // do, that is the same as Isolated.
    const std::string behavior = text_of(step, "behavior");
    const bool kept = behavior == "Isolated" || (behavior == "Removed" && flag_of(step, "invert", false));
    if (!regex.empty() && kept) return split(normalized(regex));
  }
  return "unknown " + type;
}

Steps describe(const Json& pre_tokenizer) {
  if (!pre_tokenizer.is_object()) return {};
  if (text_of(pre_tokenizer, "type") != "Sequence") return {describe_step(pre_tokenizer)};
  Steps steps;
  const auto list = pre_tokenizer.find("pretokenizers");
  if (list == pre_tokenizer.end() || !list->is_array()) return {};
  for (const Json& step : *list) steps.push_back(step.is_object() ? describe_step(step) : "unknown");
  return steps;
}

// The letters of scripts that have upper and lower case, as the tokenizers of deepseek-llm list them.
// clang-format off
constexpr std::string_view kCasedWord =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-"
    "Ὅὐ-"
    "ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-"
    "Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-"
    "𐓻𐲀-"
    "𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
// clang-format on
constexpr std::string_view kLineBreak = "[\\r\\n]";
constexpr std::string_view kIdeographs = "[一-龥ࠀ-一가-퟿]+";

// What words, punctuation and white space the newer tokenizers cut; `digits` is how many stay together.
std::string word_pattern(std::string_view digits) {
  return "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" + std::string(digits) +
         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
}

struct Known {
  std::string_view name;
  Steps steps;
};

std::vector<Known> known_steps() {
  return {
      {"gpt-2", {kByteLevelCuts}},
      {"qwen2", {split(word_pattern("")), kByteLevel}},
      {"llama-bpe", {split(word_pattern("{1,3}")), kByteLevel}},
      {"starcoder", {kEachDigit, kByteLevelCuts}},
      {"deepseek-coder",
       {split(kLineBreak), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split(kIdeographs), kEachDigit, kByteLevel}},
      {"deepseek-llm",
       {split(kLineBreak), split(kCasedWord), split("\\s?[!-/:-~！-／：-～‘-‟　-。]+"), split("\\s+$"),
        split(kIdeographs), kEachDigit, kByteLevel}},
      {"falcon", {"Punctuation Contiguous", kByteLevelCuts, kDigits, split("[0-9][0-9][0-9]")}},
  };
}

}  // namespace

std::optional<std::string_view> recognize_pre_tokenizer(const Json& pre_tokenizer) {
  const Steps steps = describe(pre_tokenizer);
  for (const Known& known : known_steps()) {
    if (known.steps == steps) return known.name;
  }
  return std::nullopt;
}

}  // namespace conclave
