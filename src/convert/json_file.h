// JSON files of a checkpoint: read whole, bounded in size and in depth, and every member asked for by type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace conclave {

using Json = nlohmann::json;

// The largest tokenizer.json seen has 33 MB. A parsed value takes some 16 times its text at worst.
inline constexpr std::uint64_t kMaxJsonBytes = 64ULL << 20;
inline constexpr int kMaxJsonDepth = 64;

// The whole file. Throws Error where it is larger than `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes = kMaxJsonBytes);

// Throws Error(bad_file) naming `shown` where `text` is no JSON or nests deeper than kMaxJsonDepth.
Json parse_json(std::string_view text, const std::string& shown);

// An object of such a file. Members that are absent or null are "not given".
class JsonObject {
 public:
  // Throws Error where the file holds something else than an object.
  static JsonObject read(const std::filesystem::path& path);

  JsonObject(Json object, std::string shown);

  const std::string& shown() const { return shown_; }
  const Json& json() const { return object_; }
  const Json* find(std::string_view key) const;  // null where it is not given

  // nullopt where it is not given; Error where it has another type or is out of range.
  std::optional<std::int64_t> find_integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::optional<double> find_number(std::string_view key) const;  // finite
  std::optional<bool> find_flag(std::string_view key) const;
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<JsonObject> find_object(std::string_view key) const;
  const Json* find_array(std::string_view key) const;

  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;

  [[noreturn]] void missing(std::string_view key) const;
  [[noreturn]] void wrong(std::string_view key, std::string_view expected) const;

 private:
  Json object_;
  std::string shown_;
};

}  // namespace conclave
