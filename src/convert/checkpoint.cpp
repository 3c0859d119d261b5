#include "convert/checkpoint.h"

#include <limits>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::size_t kMaxShards = 4096;  // each keeps a file descriptor

std::string shown(const fs::path& path) {
  return printable(path.native(), std::numeric_limits<std::size_t>::max());
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// tensor -> shard, with every shard's name held to be a plain one: an index must not lead out of its folder.
std::vector<std::pair<std::string, std::string>> read_index(const fs::path& path) {
  const JsonObject index = JsonObject::read(path);
  const auto map = index.find_object("weight_map");
  if (!map) index.missing("weight_map");
  std::vector<std::pair<std::string, std::string>> places;
  for (const auto& [tensor, shard] : map->json().items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : std::string();
    if (name.empty() || name == "." || name == ".." ||
        name.find_first_of(std::string("/\\\0", 3)) != std::string::npos) {
      fail(ErrorCode::bad_file, "{}: the shard of {} is not the name of a file", index.shown(), printable(tensor));
    }
    places.emplace_back(tensor, name);
  }
  return places;
}

}  // namespace

Checkpoint Checkpoint::open(const fs::path& folder) {
  std::error_code code;
  const fs::file_status status = fs::status(folder, code);
  if (!fs::exists(status)) fail(ErrorCode::io, "{}: there is no such directory", shown(folder));
  if (!fs::is_directory(status)) fail(ErrorCode::invalid_argument, "{}: not a directory", shown(folder));
  if (!is_there(folder / "config.json")) {
    fail(ErrorCode::bad_file, "{}: there is no config.json: not a model's directory", shown(folder));
  }
  Checkpoint checkpoint(folder, JsonObject::read(folder / "config.json"));
  checkpoint.open_shards();
  return checkpoint;
}

void Checkpoint::open_shards() {
  std::vector<std::pair<std::string, std::string>> places;
  if (is_there(folder_ / kIndexFile)) {
    places = read_index(folder_ / kIndexFile);
    std::set<std::string> shards;
    for (const auto& [tensor, shard] : places) shards.insert(shard);
    if (shards.empty()) fail(ErrorCode::bad_file, "{}: it names no tensors", shown(folder_ / kIndexFile));
    if (shards.size() > kMaxShards) {
      fail(ErrorCode::bad_file, "{}: {} shards; at most {} are read", shown(folder_ / kIndexFile), shards.size(),
           kMaxShards);
    }
    for (const std::string& shard : shards) paths_.push_back(folder_ / shard);
  } else if (is_there(folder_ / kSingleFile)) {
    paths_.push_back(folder_ / kSingleFile);
  } else {
    fail(ErrorCode::bad_file, "{}: there are no tensors: neither {} nor {}", shown(folder_), kSingleFile, kIndexFile);
  }
  files_.reserve(paths_.size());  // entries point into it
  for (const fs::path& path : paths_) {
    const SafetensorsFile& file = files_.emplace_back(SafetensorsFile::open(path));
    for (const SafeTensor& tensor : file.tensors()) {
      const auto [other, is_new] = by_name_.emplace(tensor.name, entries_.size());
      if (!is_new) {
        fail(ErrorCode::bad_file, "{}: tensor {} is in {} too", file.shown_path(), printable(tensor.name),
             entries_[other->second].file->shown_path());
      }
      entries_.push_back({&file, &tensor});
    }
  }
  for (const auto& [tensor, shard] : places) {
    const Entry* entry = find(tensor);
    if (entry == nullptr) {
      fail(ErrorCode::bad_file, "{}: tensor {} is missing, but the index says that it is there", shown(folder_ / shard),
           printable(tensor));
    }
  }
}

std::optional<JsonObject> Checkpoint::find_json(std::string_view name) const {
  if (!is_there(folder_ / name)) return std::nullopt;
  return JsonObject::read(folder_ / name);
}

std::optional<std::string> Checkpoint::find_text(std::string_view name) const {
  if (!is_there(folder_ / name)) return std::nullopt;
  return read_text_file(folder_ / name);
}

const Checkpoint::Entry* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

}  // namespace conclave
