#include "convert/json_file.h"

#include <cmath>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"
#include "base/mapped_file.h"

namespace conclave {
namespace {

// How deep brackets nest outside of strings. Whether they match is the parser's business.
int depth_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
      if (deepest > kMaxJsonDepth) return deepest;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const MappedFile file = MappedFile::open(path);
  if (file.size() > max_bytes) {
    fail(ErrorCode::bad_file, "{}: {} bytes; at most {} are read", file.shown_path(), file.size(), max_bytes);
  }
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  const std::size_t count = file.read_at(0, std::as_writable_bytes(std::span(text)));
  if (count != text.size()) fail(ErrorCode::io, "{}: it became shorter while it was read", file.shown_path());
  return text;
}

Json parse_json(std::string_view text, const std::string& shown) {
  if (depth_of(text) > kMaxJsonDepth) {
    fail(ErrorCode::bad_file, "{}: nested deeper than {} levels", shown, kMaxJsonDepth);
  }
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::parse_error& error) {
    fail(ErrorCode::bad_file, "{}: not JSON: wrong at byte {}", shown, error.byte);
  } catch (const Json::exception&) {  // a number that no double holds
    fail(ErrorCode::bad_file, "{}: not JSON that can be read: a number is out of range", shown);
  }
}

JsonObject JsonObject::read(const std::filesystem::path& path) {
  const std::string shown = printable(path.native(), std::numeric_limits<std::size_t>::max());
  return {parse_json(read_text_file(path), shown), shown};
}

JsonObject::JsonObject(Json object, std::string shown) : object_(std::move(object)), shown_(std::move(shown)) {
  if (!object_.is_object()) fail(ErrorCode::bad_file, "{}: must be a JSON object", shown_);
}

const Json* JsonObject::find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonObject::missing(std::string_view key) const {
  fail(ErrorCode::bad_file, "{}: {} is missing", shown_, key);
}

void JsonObject::wrong(std::string_view key, std::string_view expected) const {
  const Json* value = find(key);
  const std::string held = value == nullptr ? "null" : value->dump(-1, ' ', false, Json::error_handler_t::replace);
  fail(ErrorCode::bad_file, "{}: {} is {}, must be {}", shown_, key, printable(held), expected);
}

std::optional<std::int64_t> JsonObject::find_integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool fits =
      value->is_number_integer() &&
      (!value->is_number_unsigned() ||
       value->get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!fits || value->get<std::int64_t>() < min || value->get<std::int64_t>() > max) {
    wrong(key, fmt::format("an integer from {} to {}", min, max));
  }
  return value->get<std::int64_t>();
}

std::optional<double> JsonObject::find_number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) wrong(key, "a number");
  return value->get<double>();
}

std::optional<bool> JsonObject::find_flag(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> JsonObject::find_string(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong(key, "a string");
  return value->get<std::string>();
}

std::optional<JsonObject> JsonObject::find_object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) wrong(key, "an object");
  return JsonObject(*value, fmt::format("{}: {}", shown_, key));
}

const Json* JsonObject::find_array(std::string_view key) const {
  const Json* value = find(key);
  if (value != nullptr && !value->is_array()) wrong(key, "an array");
  return value;
}

std::int64_t JsonObject::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  const auto value = find_integer(key, min, max);
  if (!value) missing(key);
  return *value;
}

}  // namespace conclave
