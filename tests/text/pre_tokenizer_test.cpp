// Where each pre-tokeniser cuts. '|' in an expectation is a cut; the texts have none of their own.
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "base/file_text.h"

namespace conclave {
namespace {

std::string cut_text(std::string_view name, std::string_view text) {
  const Chars chars(text);
  std::string out;
  std::uint32_t first = 0;
  for (const std::uint32_t last : cut(*find_pre_tokenizer(name), chars)) {
    EXPECT_GT(last, first);
    if (first > 0) out += "|";
    out += text.substr(chars.start[first], chars.start[last] - chars.start[first]);
    first = last;
  }
  EXPECT_EQ(first, chars.size());
  return out;
}

// The text is the expectation without its cuts.
void expect_cuts(std::string_view name, std::initializer_list<std::string> expected) {
  for (const std::string& cuts : expected) {
    std::string text = cuts;
    std::erase(text, '|');
    EXPECT_EQ(cut_text(name, text), cuts) << name << ": " << printable(text);
  }
}

TEST(PreTokenizer, Gpt2) {
  for (const char* name : {"gpt-2", "olmo"}) {
    expect_cuts(
        name, {"Hello| world|!", "don|'t| we|'ll| I|'m| he|'s| you|'ve| you|'re| I|'d", "DON|'|T",
               "a|  | b|   |\t|c|\n|\n|d", " | a| ", "  ", "x| |\n|y", "abc|123|def| 45|.|6", "!!!|a|...", "it|'s|'ll",
               "caf\xC3\xA9|\xF0\x9F\x98\x80| \xE4\xBD\xA0\xE5\xA5\xBD", "e|\xCC\x81|x", "a|_|b", "'", "x|'|x"});
  }
}

TEST(PreTokenizer, Qwen2) {
  expect_cuts("qwen2", {"Hello| world|!", "DON|'T| We|'Ll|x", "1|2|3| |4", "a|.\n\n|b", "a| .\r\n|b", "a|  \n \n|  | b",
                        "a|\n\n|b", "x|   | y|   ", "(abc|)def", "$x| $$| $$", "\tabc|\t|\tabc", "e|\xCC\x81x",
                        "a|\xE3\x80\x80z", "!|1|!", "a|'x", "\n|a", " \n|a"});
}

TEST(PreTokenizer, Llama) {
  expect_cuts("llama-bpe", {"1|,|234|567|8", "123|456|78", "a|1|b", "DON|'T", "a|.\n\n|b", "x|   | y", "(abc|)"});
  expect_cuts("dbrx", {"123|456|78"});
  EXPECT_TRUE(find_pre_tokenizer("llama-bpe")->whole_words);
  EXPECT_FALSE(find_pre_tokenizer("dbrx")->whole_words);
}

TEST(PreTokenizer, Starcoder) {
  for (const char* name : {"starcoder", "refact"}) {
    expect_cuts(name, {"a|1|2|b", "x| |1|2|.|5", " a|  | b", "don|'t", "\xC2\xBD|\xC2\xBD"});
  }
}

TEST(PreTokenizer, Falcon) {
  expect_cuts("falcon",
              {"123|456|7| |123|4", "a|`|b", "don|'|t", "a|...|b", "x| |`~|y", "a| |$+|1", "a| \xF0\x9F\x98\x80"});
}

TEST(PreTokenizer, Default) {
  expect_cuts("default", {"123|456|7", "x| |123|4", "don|'|t", "a|...|b", "a| `|b", "a|\xD9\xA3\xD9\xA4"});
}

TEST(PreTokenizer, DeepseekLlm) {
  expect_cuts("deepseek-llm", {"Hello| world|!", "a|\n|\n|b", "a| | b|  ", "12345| |6", "\xE4\xBD\xA0\xE5\xA5\xBD|abc",
                               "Hell|\xC3\xA9", "a|\xE3\x80\x80|\xE4\xBD\xA0", "x| !?"});
}

TEST(PreTokenizer, DeepseekCoder) {
  expect_cuts("deepseek-coder", {"Hello| world|!", "a|\r|\n|b", "1|2|3", "caf\xC3\xA9| x", "a| ..|b", "a| $|b"});
}

TEST(PreTokenizer, Names) {
  EXPECT_EQ(find_pre_tokenizer("gpt-3"), nullptr);
  EXPECT_EQ(find_pre_tokenizer(""), nullptr);
  for (const PreTokenizer& pre : pre_tokenizers()) EXPECT_EQ(find_pre_tokenizer(pre.name), &pre);
}

TEST(PreTokenizer, NothingToCut) {
  for (const PreTokenizer& pre : pre_tokenizers()) EXPECT_TRUE(cut(pre, Chars("")).empty()) << pre.name;
}

// A quadratic scanner would need hours for one of these.
TEST(PreTokenizer, LongRunsAreLinear) {
  const std::clock_t start = std::clock();
  for (const PreTokenizer& pre : pre_tokenizers()) {
    for (const std::string unit : {"a", "!", " ", "\n", "7", "\xC3\xA9", "\n ", " \xFF", "'"}) {
      std::string text;
      while (text.size() < 100'000) text += unit;
      EXPECT_EQ(cut(pre, Chars(text)).back(), Chars(text).size());
    }
  }
  EXPECT_LT(std::clock() - start, 20 * CLOCKS_PER_SEC);  // of this process: a busy machine does not count
}

}  // namespace
}  // namespace conclave
