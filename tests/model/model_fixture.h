// Tiny models of every family, as lists that a test changes in one place before they become a file.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/writer.h"
#include "tensor/dtype.h"

namespace conclave::testing {

// A directory of its own, gone with the object.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "conclave-model-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct FixtureTensor {
  std::string name;
  DType type;
  std::vector<std::int64_t> dims;  // outermost first
};

struct ModelFixture {
  std::vector<std::pair<std::string, gguf::Metadata>> keys;
  std::vector<FixtureTensor> tensors;

  void set(std::string_view key, gguf::Metadata value) {
    for (auto& [name, held] : keys) {
      if (name == key) {
        held = std::move(value);
        return;
      }
    }
    keys.emplace_back(key, std::move(value));
  }
  void drop(std::string_view key) {
    const auto n = std::erase_if(keys, [&](const auto& item) { return item.first == key; });
    if (n == 0) throw std::logic_error("no key " + std::string(key));
  }
  FixtureTensor& tensor(std::string_view name) {
    for (auto& t : tensors) {
      if (t.name == name) return t;
    }
    throw std::logic_error("no tensor " + std::string(name));
  }
  void drop_tensor(std::string_view name) {
    const std::string held = tensor(name).name;
    std::erase_if(tensors, [&](const FixtureTensor& t) { return t.name == held; });
  }

  using Bytes = std::vector<std::byte>;
  // Each tensor's bytes come from fill(tensor, bytes), which gets zeros.
  void write(const std::filesystem::path& path, gguf::WriterOptions options,
             const std::function<void(const FixtureTensor&, Bytes&)>& fill) const {
    gguf::Writer writer(path, options);
    for (const auto& [key, value] : keys) writer.add(key, value);
    for (const auto& t : tensors) writer.declare(t.name, t.type, t.dims);
    for (const auto& t : tensors) {
      std::int64_t n = 1;
      for (const std::int64_t d : t.dims) n *= d;
      const DTypeInfo& info = dtype_info(t.type);
      Bytes bytes(static_cast<std::size_t>(n / info.per_block * info.bytes));
      fill(t, bytes);
      writer.write(bytes);
    }
    writer.finish();
  }
  // All weights 0.
  void write(const std::filesystem::path& path, gguf::WriterOptions options = {}) const {
    write(path, options, [](const FixtureTensor&, Bytes&) {});
  }
};

// The dimensions of every tiny model. They differ wherever a mix-up should show.
inline constexpr std::int64_t kTinyLayers = 2;
inline constexpr std::int64_t kTinyModel = 64;
inline constexpr std::int64_t kTinyHeads = 4;
inline constexpr std::int64_t kTinyKvHeads = 2;
inline constexpr std::int64_t kTinyExperts = 6;
inline constexpr std::int64_t kTinyTopK = 2;
inline constexpr std::int64_t kTinyWidth = 32;
inline constexpr std::int64_t kTinySharedWidth = 96;
inline constexpr std::int64_t kTinyVocab = 20;

struct TinyShape {
  std::int64_t n_layers = kTinyLayers;
  std::int64_t d_model = kTinyModel;
  std::int64_t d_ff = kTinyWidth;
  std::int64_t d_ff_shared = kTinySharedWidth;
  std::int64_t d_wide_head = 32;  // of qwen3moe, whose heads are not d_model / n_heads wide
};

inline void add_byte_bpe(ModelFixture& m) {
  std::vector<std::string> tokens;
  for (char c = 'a'; c <= 'p'; ++c) tokens.emplace_back(1, c);
  tokens.insert(tokens.end(), {"ab", "abc", "<|end|>", "<|pad|>"});
  std::vector<std::int32_t> types(18, 1);
  types.insert(types.end(), {3, 3});
  m.set("tokenizer.ggml.model", std::string("gpt2"));
  m.set("tokenizer.ggml.pre", std::string("qwen2"));
  m.set("tokenizer.ggml.tokens", tokens);
  m.set("tokenizer.ggml.token_type", types);
  m.set("tokenizer.ggml.merges", std::vector<std::string>{"a b", "ab c"});
  m.set("tokenizer.ggml.eos_token_id", std::uint32_t{18});
  m.set("tokenizer.ggml.padding_token_id", std::uint32_t{19});
  m.set("tokenizer.ggml.add_bos_token", false);
  m.set("tokenizer.chat_template", std::string("{{ messages }}"));
}

inline void add_sentencepiece(ModelFixture& m) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<0x00>", "<0x0A>", "<0xFF>"};
  for (char c = 'a'; c <= 'n'; ++c) tokens.push_back("\xE2\x96\x81" + std::string(1, c));
  std::vector<std::int32_t> types = {2, 3, 3, 6, 6, 6};
  types.resize(tokens.size(), 1);
  std::vector<float> scores(tokens.size(), -1.5F);
  m.set("tokenizer.ggml.model", std::string("llama"));
  m.set("tokenizer.ggml.tokens", tokens);
  m.set("tokenizer.ggml.scores", scores);
  m.set("tokenizer.ggml.token_type", types);
  m.set("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  m.set("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  m.set("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
}

// A valid model of "qwen3moe", "qwen2moe", "olmoe" or "llama".
inline ModelFixture tiny_model(const std::string& family, const TinyShape& shape = {}) {
  const auto u32 = [](std::int64_t n) { return static_cast<std::uint32_t>(n); };
  const bool wide_heads = family == "qwen3moe";  // d_head is not d_model / n_heads
  const std::int64_t d_head = wide_heads ? shape.d_wide_head : shape.d_model / kTinyHeads;
  const std::int64_t q = kTinyHeads * d_head;
  const std::int64_t kv = kTinyKvHeads * d_head;
  ModelFixture m;
  const std::string a = family + ".";
  m.set("general.architecture", family);
  m.set("general.name", std::string("tiny"));
  m.set("general.quantization_version", std::uint32_t{2});
  m.set(a + "block_count", u32(shape.n_layers));
  m.set(a + "context_length", std::uint32_t{8192});
  m.set(a + "embedding_length", u32(shape.d_model));
  m.set(a + "attention.head_count", u32(kTinyHeads));
  m.set(a + "attention.head_count_kv", u32(kTinyKvHeads));
  m.set(a + "attention.layer_norm_rms_epsilon", 1e-6F);
  m.set(a + "rope.freq_base", 1e6F);
  m.set(a + "expert_count", u32(kTinyExperts));
  m.set(a + "expert_used_count", u32(kTinyTopK));
  if (wide_heads) {
    m.set(a + "attention.key_length", u32(d_head));
    m.set(a + "attention.value_length", u32(d_head));
  }
  if (family == "llama" || family == "olmoe") {
    m.set(a + "feed_forward_length", u32(shape.d_ff));
  } else {
    m.set(a + "expert_feed_forward_length", u32(shape.d_ff));
  }
  if (family == "qwen2moe") m.set(a + "expert_shared_feed_forward_length", u32(shape.d_ff_shared));
  if (family == "llama") {
    add_sentencepiece(m);
  } else {
    add_byte_bpe(m);
  }

  m.tensors = {{"token_embd.weight", DType::q8_0, {kTinyVocab, shape.d_model}},
               {"output_norm.weight", DType::f32, {shape.d_model}},
               {"output.weight", DType::f16, {kTinyVocab, shape.d_model}}};
  for (std::int64_t i = 0; i < shape.n_layers; ++i) {
    const auto add = [&](const std::string& name, DType type, std::vector<std::int64_t> dims) {
      m.tensors.push_back({"blk." + std::to_string(i) + "." + name, type, std::move(dims)});
    };
    add("attn_norm.weight", DType::f32, {shape.d_model});
    add("attn_q.weight", DType::q8_0, {q, shape.d_model});
    add("attn_k.weight", DType::q8_0, {kv, shape.d_model});
    add("attn_v.weight", DType::f16, {kv, shape.d_model});
    add("attn_output.weight", DType::q4_0, {shape.d_model, q});
    add("ffn_norm.weight", DType::f32, {shape.d_model});
    add("ffn_gate_inp.weight", DType::f32, {kTinyExperts, shape.d_model});
    add("ffn_gate_exps.weight", DType::q4_0, {kTinyExperts, shape.d_ff, shape.d_model});
    add("ffn_up_exps.weight", DType::q4_0, {kTinyExperts, shape.d_ff, shape.d_model});
    add("ffn_down_exps.weight", DType::q5_1, {kTinyExperts, shape.d_model, shape.d_ff});
    if (family == "qwen3moe") {
      add("attn_q_norm.weight", DType::f32, {d_head});
      add("attn_k_norm.weight", DType::f32, {d_head});
    }
    if (family == "olmoe") {
      add("attn_q_norm.weight", DType::f32, {q});
      add("attn_k_norm.weight", DType::f32, {kv});
    }
    if (family == "qwen2moe") {
      add("attn_q.bias", DType::f32, {q});
      add("attn_k.bias", DType::f32, {kv});
      add("attn_v.bias", DType::f32, {kv});
      add("ffn_gate_inp_shexp.weight", DType::f32, {shape.d_model});
      add("ffn_gate_shexp.weight", DType::q8_0, {shape.d_ff_shared, shape.d_model});
      add("ffn_up_shexp.weight", DType::q8_0, {shape.d_ff_shared, shape.d_model});
      add("ffn_down_shexp.weight", DType::q8_0, {shape.d_model, shape.d_ff_shared});
    }
  }
  return m;
}

// One change to a valid model, for tables of faults.
using Edit = std::function<void(ModelFixture&)>;

inline Edit set(std::string key, gguf::Metadata value) {
  return [=](ModelFixture& m) { m.set(key, value); };
}
inline Edit set_text(std::string key, std::string text) {
  return set(std::move(key), std::move(text));
}
inline Edit set_u32(std::string key, std::uint32_t value) {
  return set(std::move(key), value);
}
inline Edit drop(std::string key) {
  return [=](ModelFixture& m) { m.drop(key); };
}
inline Edit drop_tensor(std::string name) {
  return [=](ModelFixture& m) { m.drop_tensor(name); };
}
inline Edit reshape(std::string name, std::vector<std::int64_t> dims) {
  return [=](ModelFixture& m) { m.tensor(name).dims = dims; };
}
inline Edit retype(std::string name, DType type) {
  return [=](ModelFixture& m) { m.tensor(name).type = type; };
}
inline Edit add_tensor(std::string name, std::vector<std::int64_t> dims) {
  return [=](ModelFixture& m) { m.tensors.push_back({name, DType::f32, dims}); };
}
inline Edit both(Edit first, Edit second) {
  return [=](ModelFixture& m) {
    first(m);
    second(m);
  };
}

struct Fault {
  std::string family;
  Edit edit;
  std::string message;  // a part of the one line that must come
};

}  // namespace conclave::testing
