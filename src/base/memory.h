// How much memory this process could still take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace conclave {

// Bytes that can be had without swapping: what the system says is available, and what is left below the limits of the
// process's cgroup and those above it (memory that only caches files counts as free in both). Nothing where the system
// does not say. `root` is for tests: the folder that stands for /.
std::optional<std::int64_t> available_memory(const std::filesystem::path& root = "/");

// What this process has in memory now.
struct ResidentMemory {
  std::int64_t total = 0;  // with the pages of mapped files
  std::int64_t own = 0;    // without them
};
// Nothing where the system does not say.
std::optional<ResidentMemory> resident_memory(const std::filesystem::path& root = "/");

// 17.28 GiB
std::string size_text(std::uint64_t bytes);

}  // namespace conclave
