// A folder as transformers saves it: config.json, the tensors in one safetensors file or in shards with an index, and
// the tokenizer's files.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "convert/json_file.h"
#include "convert/safetensors.h"

namespace conclave {

class Checkpoint {
 public:
  struct Entry {
    const SafetensorsFile* file;
    const SafeTensor* tensor;
    std::span<const std::byte> data() const { return file->data(*tensor); }
  };

  // Opens model.safetensors, or every shard that model.safetensors.index.json names. Throws Error where the folder, its
  // config.json or its tensors are not there, where a shard lacks a tensor that the index promises, or where two shards
  // have the same one.
  static Checkpoint open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const JsonObject& config() const { return config_; }
  // A JSON object beside it, where there is such a file.
  std::optional<JsonObject> find_json(std::string_view name) const;
  std::optional<std::string> find_text(std::string_view name) const;

  const Entry* find(std::string_view name) const;
  const std::vector<Entry>& entries() const { return entries_; }  // shard by shard, in the order of their data
  std::span<const std::filesystem::path> tensor_files() const { return paths_; }

 private:
  Checkpoint(std::filesystem::path folder, JsonObject config)
      : folder_(std::move(folder)), config_(std::move(config)) {}
  void open_shards();

  std::filesystem::path folder_;
  JsonObject config_;
  std::vector<std::filesystem::path> paths_;
  std::vector<SafetensorsFile> files_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

}  // namespace conclave
