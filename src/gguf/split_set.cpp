#include "gguf/split_set.h"

#include <string_view>

#include "base/fail.h"
#include "gguf/limits.h"

namespace conclave::gguf {
namespace {

constexpr std::size_t kDigits = 5;
constexpr std::string_view kEnding = ".gguf";
constexpr std::string_view kOf = "-of-";

// Exactly five decimal digits.
std::optional<std::uint32_t> parse_number(std::string_view digits) {
  std::uint32_t number = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + static_cast<std::uint32_t>(digit - '0');
  }
  return number;
}

std::optional<std::uint64_t> integer_key(const Header& header, const std::string& shown, std::string_view key) {
  const KeyValue* const found = find_key(header, key);
  if (found == nullptr) return std::nullopt;
  const auto value = found->value.as_u64();
  if (!value) fail(ErrorCode::bad_file, "{}: key '{}': it must be an integer that is not negative", shown, key);
  return value;
}

}  // namespace

std::optional<PartName> parse_part_name(const std::filesystem::path& path) {
  const std::string file = path.filename().native();
  std::string_view rest = file;
  constexpr std::size_t kTail = 1 + kDigits + kOf.size() + kDigits + kEnding.size();
  if (rest.size() < kTail || !rest.ends_with(kEnding)) return std::nullopt;
  const std::string_view tail = rest.substr(rest.size() - kTail);
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf) return std::nullopt;
  const auto index = parse_number(tail.substr(1, kDigits));
  const auto count = parse_number(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (!index || !count || *index < 1 || *index > *count) return std::nullopt;
  return PartName{std::string(rest.substr(0, rest.size() - kTail)), *index, *count};
}

std::filesystem::path part_path(const std::filesystem::path& folder, const PartName& name) {
  return folder / fmt::format("{}-{:05}{}{:05}{}", name.stem, name.index, kOf, name.count, kEnding);
}

std::vector<std::filesystem::path> files_of_set(const std::filesystem::path& path, std::uint32_t count) {
  std::vector<std::filesystem::path> files = {path};
  auto name = parse_part_name(path);
  for (std::uint32_t i = 1; name && count > 1 && i <= count; ++i) {
    name->index = i;
    files.push_back(part_path(path.parent_path(), *name));
  }
  return files;
}

SplitKeys split_keys(const Header& header, const std::string& shown) {
  const auto count = integer_key(header, shown, kSplitCountKey);
  const auto number = integer_key(header, shown, kSplitNumberKey);
  SplitKeys keys{.n_tensors = integer_key(header, shown, kSplitTensorsKey)};
  if (!count) {
    if (number)
      fail(ErrorCode::bad_file, "{}: key '{}': there is no '{}' with it", shown, kSplitNumberKey, kSplitCountKey);
    return keys;
  }
  if (*count == 0) return keys;  // what some tools leave behind when they join a set
  if (*count > kMaxParts) {
    fail(ErrorCode::bad_file, "{}: key '{}': {} parts; at most {} are read", shown, kSplitCountKey, *count, kMaxParts);
  }
  if (*count > 1 && !number) fail(ErrorCode::bad_file, "{}: key '{}' is missing", shown, kSplitNumberKey);
  keys.count = *count;
  keys.number = number.value_or(0);
  if (keys.number >= keys.count) {
    fail(ErrorCode::bad_file, "{}: key '{}': part {} (from 0) of {}", shown, kSplitNumberKey, keys.number, keys.count);
  }
  return keys;
}

}  // namespace conclave::gguf
