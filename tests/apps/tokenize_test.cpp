// Runs `conclave tokenize`: what it prints, and what it refuses.
#include <fstream>
#include <nlohmann/json.hpp>

#include "apps/program.h"
#include "engine/vocabulary_file.h"
#include "text/vocabulary_fixture.h"

namespace conclave {
namespace {

class Tokenize : public ProgramTest {
 protected:
  Tokenize() : ProgramTest("tokenize") {
    Vocabulary bpe = testing::bpe_vocabulary("qwen2", {"h|e", "l|l", "he|ll", "hell|o", " |w"});
    bpe.special.bos = testing::add(bpe, "<begin>", TokenType::control);  // 261
    testing::vocabulary_file(bpe).write(path("bpe.gguf"));
    testing::vocabulary_file(testing::piece_vocabulary({{"_", -1}, {"h", -2}, {"i", -3}, {"_h", -4}, {"_hi", -5}}))
        .write(path("pieces.gguf"));
  }

  Outcome tokenize(const std::string& arguments, const std::string& input) const {
    std::ofstream(path("stdin"), std::ios::binary) << input;
    return run(arguments + " <'" + path("stdin") + "'");
  }
  std::string bpe(const std::string& more = "") const { return "-m '" + path("bpe.gguf") + "' " + more; }
  std::string pieces(const std::string& more = "") const { return "-m '" + path("pieces.gguf") + "' " + more; }

  void expect_output(const std::string& arguments, const std::string& input, const std::string& output) const {
    const Outcome r = tokenize(arguments, input);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_EQ(r.out, output) << arguments;
    EXPECT_EQ(r.err, "");
  }
};

TEST_F(Tokenize, HelpTeaches) {
  const Outcome r = run("--help");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.err, "");
  for (const char* part :
       {"-m", "--ids", "--json", "--decode", "--add-special", "--parse-special", "Examples:", "newline"}) {
    EXPECT_TRUE(has(r.out, part)) << part;
  }
}

TEST_F(Tokenize, OneTokenALine) {
  expect_output(bpe(), "hello w\n", "259\t\"hello\"\n260\t\" w\"\n10\t\"\\x0a\"\n");
  expect_output(bpe(), "\xC3\xA9", "195\t\"\\xc3\"\n169\t\"\\xa9\"\n");
  expect_output(pieces(), "hi", "263\t\" hi\"\n");
  expect_output(bpe(), "", "");
}

TEST_F(Tokenize, Ids) {
  expect_output(bpe("--ids"), "hello w\n", "259 260 10\n");
  expect_output(bpe("--ids"), "", "\n");
  expect_output(bpe("--ids"), std::string("\0\xFF", 2), "0 255\n");
  expect_output(pieces("--ids"), "hi hi", "263 263\n");
}

TEST_F(Tokenize, SpecialTokensWhenAsked) {
  expect_output(pieces("--ids --add-special"), "hi", "1 263\n");
  expect_output(pieces("--ids --parse-special"), "hi</s>hi", "263 2 263\n");
  expect_output(bpe("--ids"), "<begin>", "60 98 101 103 105 110 62\n");
  expect_output(bpe("--ids --parse-special"), "<begin>", "261\n");
  expect_output(bpe("--ids --add-special"), "h", "104\n");  // the file does not ask for a begin token
}

TEST_F(Tokenize, Json) {
  const Outcome r = tokenize(bpe("--json --parse-special"), "<begin>he\xFF");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  ASSERT_EQ(j["tokens"].size(), 3U);
  EXPECT_EQ(j["tokens"][0], (nlohmann::json{{"id", 261}, {"piece", "<begin>"}, {"control", true}}));
  EXPECT_EQ(j["tokens"][1]["piece"], "he");
  EXPECT_EQ(j["tokens"][2]["piece"], "\xEF\xBF\xBD");
}

TEST_F(Tokenize, Decode) {
  expect_output(bpe("--decode"), "259 260\n10\n", "hello w\n");
  expect_output(bpe("--decode"), "[259, 260]", "hello w");
  expect_output(bpe("--decode"), "0,255", std::string("\0\xFF", 2));
  expect_output(bpe("--decode"), "261 259", "hello");
  expect_output(bpe("--decode --parse-special"), "261 259", "<begin>hello");
  expect_output(pieces("--decode"), "1 263 263", "hi hi");
  expect_output(bpe("--decode"), "", "");
}

TEST_F(Tokenize, RoundTripOfAnyBytes) {
  for (const std::string& text : testing::awkward_texts()) {
    for (const std::string& file : {bpe(), pieces()}) {
      expect_output(file + "--decode", tokenize(file + "--ids", text).out, text);
    }
  }
}

TEST_F(Tokenize, SaysWhatGetsLost) {
  Vocabulary v = testing::bpe_vocabulary("gpt-2", {});
  v.tokens['\v'] = "other";
  testing::vocabulary_file(v).write(path("lossy.gguf"));
  const Outcome r = tokenize("--ids -m '" + path("lossy.gguf") + "'", "a\vb");
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_EQ(r.out, "97 98\n");
  EXPECT_TRUE(has(r.err, "no token for 1 bytes")) << r.err;
}

TEST_F(Tokenize, BadInputs) {
  std::ofstream(path("text.gguf")) << "this is no model file";
  std::ofstream(path("empty.gguf"));
  testing::ModelFixture none;
  none.set("general.architecture", std::string("qwen3moe"));
  none.write(path("no_keys.gguf"));
  none.set("tokenizer.ggml.model", std::string("none"));
  none.write(path("none.gguf"));
  Vocabulary v = testing::bpe_vocabulary("gpt-2", {});
  v.pre = "of-tomorrow";
  testing::vocabulary_file(v).write(path("pre.gguf"));
  v = testing::bpe_vocabulary("gpt-2", {"a|b"});
  v.merges = {"a zz"};
  testing::vocabulary_file(v).write(path("merges.gguf"));
  v = testing::bpe_vocabulary("gpt-2", {});
  testing::add(v, std::string(5000, 'x'), TokenType::control);
  testing::vocabulary_file(v).write(path("long.gguf"));

  const auto expect_bad = [&](const std::string& arguments, const std::string& input, const std::string& part) {
    const Outcome r = tokenize(arguments, input);
    expect_error(r, part);
    EXPECT_EQ(r.out, "");
  };
  const auto file = [&](const std::string& name) { return "-m '" + path(name) + "'"; };
  expect_bad(file("missing.gguf"), "x", "missing.gguf");
  expect_bad("-m '" + path("") + "'", "x", "");
  expect_bad(file("text.gguf"), "x", "text.gguf");
  expect_bad(file("empty.gguf"), "x", "empty.gguf");
  expect_bad(file("no_keys.gguf"), "x", "tokenizer.ggml.model");
  expect_bad(file("none.gguf"), "x", "none.gguf: the file has no vocabulary");
  expect_bad(file("pre.gguf"), "x", "of-tomorrow");
  expect_bad(file("merges.gguf"), "x", "'zz' is no token");
  expect_bad(file("long.gguf"), "x", "special token 256");
  expect_bad(bpe("--decode"), "1 two", "'two' is no token id");
  expect_bad(bpe("--decode"), "1 -1", "token id -1 is not in the vocabulary of 262 tokens");
  expect_bad(bpe("--decode"), "262", "token id 262 is not in the vocabulary");
  expect_bad(bpe("--decode"), "99999999999999999999", "is no token id");
}

TEST_F(Tokenize, WrongUsage) {
  expect_wrong_usage("");
  expect_wrong_usage("-m");
  expect_wrong_usage(bpe("--ids --json"));
  expect_wrong_usage(bpe("--decode --ids"));
  expect_wrong_usage(bpe("--decode --add-special"));
  expect_wrong_usage(bpe("stray"));
  expect_wrong_usage(bpe("--colour"));
}

}  // namespace
}  // namespace conclave
