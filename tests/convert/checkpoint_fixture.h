// Tiny checkpoints of every kind, as values that a test changes in one place before they become a folder.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace conclave::testing {

using Json = nlohmann::json;

struct HfTensor {
  std::string dtype;  // "F32" or "BF16"
  std::vector<std::int64_t> dims;
};

inline std::int64_t elements_of(const std::vector<std::int64_t>& dims) {
  std::int64_t n = 1;
  for (const std::int64_t dim : dims) n *= dim;
  return n;
}

// Element `i` of the tensor `name`: a number that bf16 holds exactly, and that differs between tensors and places.
inline float element_of(const std::string& name, std::int64_t i) {
  std::uint64_t h = 1469598103934665603ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  h = (h ^ static_cast<std::uint64_t>(i)) * 0x9E3779B97F4A7C15ULL;
  return static_cast<float>(static_cast<int>((h >> 33) % 255) - 127) / 64.0F;
}

inline std::string bytes_of(const std::string& name, const HfTensor& tensor) {
  std::string bytes;
  for (std::int64_t i = 0; i < elements_of(tensor.dims); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(element_of(name, i));
    const std::uint32_t stored = tensor.dtype == "BF16" ? bits >> 16 : bits;
    bytes.append(reinterpret_cast<const char*>(&stored), tensor.dtype == "BF16" ? 2 : 4);
  }
  return bytes;
}

inline void put_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A safetensors file of a header and the data after it.
inline std::string safetensors_of(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header + data;
}

inline std::string safetensors_of(const std::map<std::string, HfTensor>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t begin = data.size();
    data += bytes_of(name, tensor);
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.dims}, {"data_offsets", {begin, data.size()}}};
  }
  return safetensors_of(header.dump(), data);
}

struct CheckpointFixture {
  Json config;
  Json tokenizer;         // tokenizer.json; null: there is none
  Json tokenizer_config;  // null: there is none
  Json generation_config;
  std::string chat_template;  // chat_template.jinja; empty: there is none
  std::map<std::string, HfTensor> tensors;

  void write(const std::filesystem::path& folder, std::size_t shards = 1) const {
    std::filesystem::create_directories(folder);
    put_file(folder / "config.json", config.dump());
    if (!tokenizer.is_null()) put_file(folder / "tokenizer.json", tokenizer.dump());
    if (!tokenizer_config.is_null()) put_file(folder / "tokenizer_config.json", tokenizer_config.dump());
    if (!generation_config.is_null()) put_file(folder / "generation_config.json", generation_config.dump());
    if (!chat_template.empty()) put_file(folder / "chat_template.jinja", chat_template);
    if (shards == 1) {
      put_file(folder / "model.safetensors", safetensors_of(tensors));
      return;
    }
    std::vector<std::map<std::string, HfTensor>> parts(shards);
    Json index = {{"weight_map", Json::object()}};
    std::size_t next = 0;
    for (const auto& [name, tensor] : tensors) {
      const std::size_t part = next++ % shards;
      parts[part].emplace(name, tensor);
      index["weight_map"][name] = shard_name(part);
    }
    for (std::size_t i = 0; i < shards; ++i) put_file(folder / shard_name(i), safetensors_of(parts[i]));
    put_file(folder / "model.safetensors.index.json", index.dump());
  }
  static std::string shard_name(std::size_t i) { return "model-" + std::to_string(i + 1) + ".safetensors"; }
};

inline constexpr std::int64_t kHfLayers = 2;
inline constexpr std::int64_t kHfModel = 32;
inline constexpr std::int64_t kHfHeads = 4;
inline constexpr std::int64_t kHfKvHeads = 2;
inline constexpr std::int64_t kHfHead = 8;
inline constexpr std::int64_t kHfExperts = 3;
inline constexpr std::int64_t kHfWidth = 64;
inline constexpr std::int64_t kHfSharedWidth = 96;
inline constexpr std::int64_t kHfVocab = 20;

// a to p, two merges, and two special tokens; ids 18 and up.
inline Json byte_level_tokenizer() {
  Json vocabulary = Json::object();
  for (int i = 0; i < 14; ++i) vocabulary[std::string(1, static_cast<char>('a' + i))] = i;
  vocabulary["ab"] = 14;
  vocabulary["abc"] = 15;
  return {{"added_tokens",
           {{{"id", 16}, {"content", "<|end|>"}, {"special", true}},
            {{"id", 17}, {"content", "<think>"}, {"special", false}}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array({"a b", "ab c"})}}}};
}

inline void add_experts(CheckpointFixture& f, const std::string& layer, bool mixtral) {
  for (std::int64_t e = 0; e < kHfExperts; ++e) {
    const std::string expert = layer + (mixtral ? "block_sparse_moe" : "mlp") + ".experts." + std::to_string(e) + ".";
    f.tensors[expert + (mixtral ? "w1" : "gate_proj") + ".weight"] = {"BF16", {kHfWidth, kHfModel}};
    f.tensors[expert + (mixtral ? "w3" : "up_proj") + ".weight"] = {"BF16", {kHfWidth, kHfModel}};
    f.tensors[expert + (mixtral ? "w2" : "down_proj") + ".weight"] = {"BF16", {kHfModel, kHfWidth}};
  }
}

// `architecture` is "Qwen3MoeForCausalLM" or another that convert knows. Two ids past the tokenizer's are unused.
inline CheckpointFixture tiny_checkpoint(const std::string& architecture) {
  const bool qwen2 = architecture == "Qwen2MoeForCausalLM";
  const bool qwen3 = architecture == "Qwen3MoeForCausalLM";
  const bool mixtral = architecture == "MixtralForCausalLM";
  const bool olmoe = architecture == "OlmoeForCausalLM";
  if (!qwen2 && !qwen3 && !mixtral && !olmoe) throw std::logic_error("no checkpoint " + architecture);
  CheckpointFixture f;
  f.config = {{"architectures", {architecture}},
              {"hidden_size", kHfModel},
              {"num_hidden_layers", kHfLayers},
              {"num_attention_heads", kHfHeads},
              {"num_key_value_heads", kHfKvHeads},
              {"max_position_embeddings", 128},
              {"num_experts_per_tok", 2},
              {"vocab_size", kHfVocab},
              {"rms_norm_eps", 1e-6},
              {"rope_theta", 50000.0},
              {"tie_word_embeddings", false}};
  f.config[mixtral ? "num_local_experts" : "num_experts"] = kHfExperts;
  f.config["intermediate_size"] = qwen2 || qwen3 ? 4 * kHfWidth : kHfWidth;
  if (qwen2 || qwen3) f.config["moe_intermediate_size"] = kHfWidth;
  if (qwen2) f.config["shared_expert_intermediate_size"] = kHfSharedWidth;
  f.tokenizer = byte_level_tokenizer();
  f.tokenizer_config = {{"eos_token", "<|end|>"}, {"chat_template", "{{ messages }}"}};

  const std::int64_t q = kHfHeads * kHfHead;
  const std::int64_t kv = kHfKvHeads * kHfHead;
  f.tensors["model.embed_tokens.weight"] = {"BF16", {kHfVocab, kHfModel}};
  f.tensors["model.norm.weight"] = {"BF16", {kHfModel}};
  f.tensors["lm_head.weight"] = {"BF16", {kHfVocab, kHfModel}};
  for (std::int64_t i = 0; i < kHfLayers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    f.tensors[layer + "input_layernorm.weight"] = {"BF16", {kHfModel}};
    f.tensors[layer + "post_attention_layernorm.weight"] = {"BF16", {kHfModel}};
    f.tensors[layer + "self_attn.q_proj.weight"] = {"BF16", {q, kHfModel}};
    f.tensors[layer + "self_attn.k_proj.weight"] = {"BF16", {kv, kHfModel}};
    f.tensors[layer + "self_attn.v_proj.weight"] = {"BF16", {kv, kHfModel}};
    f.tensors[layer + "self_attn.o_proj.weight"] = {"BF16", {kHfModel, q}};
    if (qwen3 || olmoe) {
      f.tensors[layer + "self_attn.q_norm.weight"] = {"BF16", {qwen3 ? kHfHead : q}};
      f.tensors[layer + "self_attn.k_norm.weight"] = {"BF16", {qwen3 ? kHfHead : kv}};
    }
    if (qwen2) {
      f.tensors[layer + "self_attn.q_proj.bias"] = {"BF16", {q}};
      f.tensors[layer + "self_attn.k_proj.bias"] = {"BF16", {kv}};
      f.tensors[layer + "self_attn.v_proj.bias"] = {"BF16", {kv}};
      f.tensors[layer + "mlp.shared_expert_gate.weight"] = {"BF16", {1, kHfModel}};
      f.tensors[layer + "mlp.shared_expert.gate_proj.weight"] = {"BF16", {kHfSharedWidth, kHfModel}};
      f.tensors[layer + "mlp.shared_expert.up_proj.weight"] = {"BF16", {kHfSharedWidth, kHfModel}};
      f.tensors[layer + "mlp.shared_expert.down_proj.weight"] = {"BF16", {kHfModel, kHfSharedWidth}};
    }
    f.tensors[layer + (mixtral ? "block_sparse_moe" : "mlp") + ".gate.weight"] = {"BF16", {kHfExperts, kHfModel}};
    add_experts(f, layer, mixtral);
  }
  return f;
}

}  // namespace conclave::testing
