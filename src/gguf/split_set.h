// Models cut into several files: NAME-00001-of-00003.gguf and so on, each with the keys split.no (from 0), split.count
// and split.tensors.count (of the whole set).
//
// The keys decide, not the name: a file without split.count, or with a count of 0 or 1, stands alone whatever it is
// called. One whose keys say that there are more must have the name by which the others are found.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gguf/header_parser.h"

namespace conclave::gguf {

struct PartName {
  std::string stem;         // NAME
  std::uint32_t index = 0;  // from 1, as the name has it
  std::uint32_t count = 0;
};

// Null unless the last component of `path` is NAME-IIIII-of-CCCCC.gguf.
std::optional<PartName> parse_part_name(const std::filesystem::path& path);
std::filesystem::path part_path(const std::filesystem::path& folder, const PartName& name);

// Every file of a set of `count` parts of which `path` is one; `path` alone where the set has one.
std::vector<std::filesystem::path> files_of_set(const std::filesystem::path& path, std::uint32_t count);

struct SplitKeys {
  std::uint64_t number = 0;  // from 0
  std::uint64_t count = 1;
  std::optional<std::uint64_t> n_tensors;
};

// Throws Error where the keys are badly typed or contradict each other. `shown` is the file's name for messages.
SplitKeys split_keys(const Header& header, const std::string& shown);

}  // namespace conclave::gguf
