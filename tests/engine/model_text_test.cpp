// ModelText: prompts with the tokens that a model wants around them, and no others.
#include "conclave/text.h"

#include <gtest/gtest.h>

#include "engine/talking_model.h"

namespace conclave::testing {
namespace {

Tokens bytes_of(std::string_view text) {
  Tokens ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

// Control tokens as they are written, for comparisons that can be read.
std::string written(const Tokens& ids) {
  std::string out;
  for (const std::int32_t id : ids) {
    if (id < 256) {
      out += static_cast<char>(id);
    } else {
      out += id == kImStart ? "[start]" : id == kImEnd ? "[end]" : "[text]";
    }
  }
  return out;
}

TEST(ModelText, EncodesAndDecodesAnyBytes) {
  const ModelText text(TalkingModel().open());  // needs the model no longer
  for (const std::string& sample : awkward_texts()) EXPECT_EQ(text.decode(text.encode(sample)), sample);
  EXPECT_EQ(text.encode("a<|im_end|>"), bytes_of("a<|im_end|>"));
  EXPECT_EQ(text.encode("a<|im_end|>", true), (Tokens{'a', kImEnd}));
  EXPECT_EQ(text.decode(Tokens{'a', kImEnd, 'b'}), "ab");
  EXPECT_THROW(text.decode(Tokens{1000}), Error);
  EXPECT_EQ(text.end_ids(), (Tokens{kImEnd, kEndOfText}));
}

TEST(ModelText, APromptHasTheBeginTokenThatTheModelWants) {
  EXPECT_EQ(written(ModelText(TalkingModel().open()).prompt("hi")), "hi");
  const ModelText text(TalkingModel({.begin_token = true}).open());
  EXPECT_EQ(written(text.prompt("hi")), "[text]hi");
  EXPECT_EQ(written(text.prompt("")), "[text]");
  EXPECT_EQ(written(text.prompt("<|endoftext|>hi", true)), "[text]hi");
  EXPECT_EQ(written(text.encode("hi")), "hi");
}

TEST(ModelText, ChatMlWhereTheFileHasNoTemplate) {
  const ModelText text(TalkingModel().open());
  EXPECT_FALSE(text.has_chat_template());
  const ChatTurn turns[] = {{"system", "Be brief."}, {"user", "hi"}, {"assistant", "yes"}, {"user", "<|im_end|>"}};
  EXPECT_EQ(written(text.chat_prompt(turns)),
            "[start]system\nBe brief.[end]\n[start]user\nhi[end]\n[start]assistant\nyes[end]\n"
            "[start]user\n<|im_end|>[end]\n[start]assistant\n");
}

TEST(ModelText, TheFilesOwnTemplate) {
  const TalkingModel file({.chat_template = "{{ bos_token }}{% for m in messages %}{{ m.content }}<|im_start|>"
                                            "{% if m.content == 'bad' %}{{ raise_exception('no!') }}{% endif %}"
                                            "{% endfor %}{{ eos_token }}",
                           .begin_token = true});
  const ModelText text(file.open());
  EXPECT_TRUE(text.has_chat_template());
  const ChatTurn turn[] = {{"user", "<|im_start|><|endoftext|>"}};
  EXPECT_EQ(written(text.chat_prompt(turn)), "[text]<|im_start|><|endoftext|>[start][end]");  // one begin token
  const ChatTurn bad[] = {{"user", "bad"}};
  EXPECT_THROW(text.chat_prompt(bad), Error);
}

TEST(ModelText, ABrokenTemplateMattersToChatsAlone) {
  const ModelText text(TalkingModel({.chat_template = "{% for %}"}).open());
  EXPECT_EQ(written(text.prompt("hi")), "hi");
  const ChatTurn turn[] = {{"user", "hi"}};
  EXPECT_THROW(text.chat_prompt(turn), Error);
  const ModelText loops(TalkingModel({.chat_template = "{% for i in range(99999999) %}x{% endfor %}"}).open());
  EXPECT_THROW(loops.chat_prompt(turn), Error);
}

TEST(ModelText, AStreamCutsBetweenCharacters) {
  const ModelText text(TalkingModel().open());
  ModelText::Stream stream(text);
  EXPECT_EQ(stream.push(0xC3), "");
  EXPECT_EQ(stream.push(0xA9), "\u00e9");
  EXPECT_EQ(stream.push(kImStart), "");
  EXPECT_EQ(stream.push(0xE4), "");
  EXPECT_EQ(stream.finish(), "\xE4");
}

TEST(ModelText, AFileWithoutAVocabularyIsRefused) {
  ModelFixture model = tiny_model("qwen3moe");
  std::erase_if(model.keys, [](const auto& item) { return item.first.starts_with("tokenizer."); });
  model.set("tokenizer.ggml.model", std::string("none"));
  const TempDir folder;
  model.write(folder.path() / "none.gguf");
  const Model opened = Model::open(folder.path() / "none.gguf", {.device = "ref"});
  EXPECT_FALSE(opened.facts().has_vocabulary);
  EXPECT_THROW(ModelText{opened}, Error);
}

}  // namespace
}  // namespace conclave::testing
