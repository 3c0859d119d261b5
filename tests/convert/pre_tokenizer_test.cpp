#include "convert/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace conclave {
namespace {

const char* const kWords =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kWordsOfThreeDigits =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json split(const std::string& regex, const std::string& behavior = "Isolated", bool invert = false) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", invert}};
}

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json sequence(const Json& steps) {
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

TEST(PreTokenizer, KnownOnesHaveTheirNames) {
  EXPECT_EQ(recognize_pre_tokenizer(byte_level(true)), "gpt-2");
  EXPECT_EQ(recognize_pre_tokenizer({{"type", "ByteLevel"}}), "gpt-2");  // its defaults
  EXPECT_EQ(recognize_pre_tokenizer(sequence({split(kWords), byte_level(false)})), "qwen2");
  EXPECT_EQ(recognize_pre_tokenizer(sequence({split(kWordsOfThreeDigits, "Removed", true), byte_level(false)})),
            "llama-bpe");
  const Json each_digit = {{"type", "Digits"}, {"individual_digits", true}};
  EXPECT_EQ(recognize_pre_tokenizer(sequence({each_digit, byte_level(true)})), "starcoder");
  EXPECT_EQ(recognize_pre_tokenizer(sequence({split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"),
                                              split("[一-龥ࠀ-一가-퟿]+"), each_digit, byte_level(false)})),
            "deepseek-coder");
  EXPECT_EQ(recognize_pre_tokenizer(sequence({{{"type", "Punctuation"}, {"behavior", "Contiguous"}},
                                              byte_level(true),
                                              {{"type", "Digits"}, {"individual_digits", false}},
                                              split("[0-9][0-9][0-9]")})),
            "falcon");
}

TEST(PreTokenizer, OthersHaveNone) {
  const Json others[] = {
      nullptr,
      5,
      Json::object(),
      byte_level(false),  // nothing cuts
      {{"type", "ByteLevel"}, {"add_prefix_space", true}},
      {{"type", "Whitespace"}},
      {{"type", "Sequence"}},
      sequence({5}),
      sequence({split(kWords), byte_level(true)}),
      sequence({split(std::string(kWords) + "|x"), byte_level(false)}),
      sequence({split(kWords, "Removed", false), byte_level(false)}),
      {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Isolated"}},
  };
  for (const Json& other : others) EXPECT_FALSE(recognize_pre_tokenizer(other)) << other;
}

}  // namespace
}  // namespace conclave
