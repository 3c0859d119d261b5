// A tiny model with random weights that takes and gives any text: a token per byte, and the control tokens of ChatML.
#pragma once

#include "engine/random_model.h"
#include "engine/vocabulary_file.h"
#include "text/vocabulary_fixture.h"

namespace conclave::testing {

struct TalkingOptions {
  std::string chat_template = {};  // empty: none
  bool begin_token = false;        // <|endoftext|> before each text
  std::uint32_t n_context = 8192;
  std::uint64_t seed = 1;
};

inline constexpr std::int32_t kImStart = 256;
inline constexpr std::int32_t kImEnd = 257;
inline constexpr std::int32_t kEndOfText = 258;
inline constexpr std::int64_t kTalkingVocab = 259;

class TalkingModel {
 public:
  explicit TalkingModel(const TalkingOptions& options = {}) {
    ModelFixture model = tiny_model("qwen3moe");
    retype_blocks(model, DType::f32);
    for (const char* key : {"tokenizer.ggml.padding_token_id", "tokenizer.chat_template"}) model.drop(key);
    Vocabulary v = bpe_vocabulary("qwen2", {});
    for (const char* token : {"<|im_start|>", "<|im_end|>", "<|endoftext|>"}) add(v, token, TokenType::control);
    v.special.bos = kEndOfText;
    v.special.eos = kImEnd;
    for (const auto& [key, value] : vocabulary_file(v).keys) model.set(key, value);
    model.set("tokenizer.ggml.add_bos_token", options.begin_token);
    model.set("qwen3moe.context_length", options.n_context);
    if (!options.chat_template.empty()) model.set("tokenizer.chat_template", options.chat_template);
    for (const char* name : {"token_embd.weight", "output.weight"}) model.tensor(name).dims[0] = kTalkingVocab;
    write_random(model, path(), options.seed);
  }
  std::filesystem::path path() const { return folder_.path() / "talking.gguf"; }
  Model open(int threads = 2) const { return Model::open(path(), {.device = "cpu", .threads = threads}); }

 private:
  TempDir folder_;
};

}  // namespace conclave::testing
