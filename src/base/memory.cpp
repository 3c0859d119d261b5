#include "base/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string_view>

namespace conclave {
namespace {

namespace fs = std::filesystem;

std::string whole_text(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// The number that follows `name` and blanks at the beginning of a line; of an empty name, the one the text begins with.
std::optional<std::int64_t> number_after(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.starts_with(name)) continue;
    line.remove_prefix(name.size());
    const std::size_t digits = line.find_first_not_of(" \t");
    if (digits == std::string_view::npos || (digits == 0 && !name.empty())) continue;
    std::int64_t value = 0;
    const auto [stop, fault] = std::from_chars(line.data() + digits, line.data() + line.size(), value);
    if (fault == std::errc{} && value >= 0) return value;
  }
  return std::nullopt;
}

std::optional<std::int64_t> smaller(std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* file_cache;  // the line of memory.stat with what only caches files
};
constexpr CgroupFiles kVersion2{"memory.max", "memory.current", "file"};
constexpr CgroupFiles kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"};

// What one cgroup leaves. "max" is no number: no limit.
std::optional<std::int64_t> left_in(const fs::path& folder, const CgroupFiles& files) {
  const auto limit = number_after(whole_text(folder / files.limit), "");
  const auto usage = number_after(whole_text(folder / files.usage), "");
  if (!limit || !usage) return std::nullopt;
  const std::int64_t cached = number_after(whole_text(folder / "memory.stat"), files.file_cache).value_or(0);
  return std::max<std::int64_t>(*limit - std::max<std::int64_t>(*usage - cached, 0), 0);
}

// The least that is left in a cgroup and in those above it, up to the mount.
std::optional<std::int64_t> left_up_to_mount(const fs::path& mount, std::string_view cgroup, const CgroupFiles& files) {
  std::optional<std::int64_t> left = left_in(mount, files);
  fs::path folder = mount;
  for (const fs::path& part : fs::path(cgroup).relative_path()) {
    if (part == "..") return left;  // outside our namespace: not to be seen from here
    folder /= part;
    left = smaller(left, left_in(folder, files));
  }
  return left;
}

}  // namespace

std::optional<std::int64_t> available_memory(const fs::path& root) {
  std::optional<std::int64_t> available;
  if (const auto kib = number_after(whole_text(root / "proc/meminfo"), "MemAvailable:")) {
    available = std::min(*kib, std::numeric_limits<std::int64_t>::max() / 1024) * 1024;
  }
  const fs::path mounts = root / "sys/fs/cgroup";
  std::istringstream cgroups(whole_text(root / "proc/self/cgroup"));  // lines of number:controllers:path
  for (std::string line; std::getline(cgroups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string cgroup = line.substr(second + 1);
    if (controllers.empty()) {
      available = smaller(available, left_up_to_mount(mounts, cgroup, kVersion2));
    } else if (controllers == "memory") {
      available = smaller(available, left_up_to_mount(mounts / "memory", cgroup, kVersion1));
    }
  }
  return available;
}

std::optional<ResidentMemory> resident_memory(const fs::path& root) {
  const std::string status = whole_text(root / "proc/self/status");
  const auto total = number_after(status, "VmRSS:");
  const auto own = number_after(status, "RssAnon:");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 1024;
  if (!total || !own || *total > kMost || *own > kMost) return std::nullopt;
  return ResidentMemory{.total = *total * 1024, .own = *own * 1024};
}

std::string size_text(std::uint64_t bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 999.995 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace conclave
