// Lines that were entered before, in memory and in a file. Nothing about the file is ever an error: a history that cannot
// be read or kept is one that is forgotten.
//
// The file has one entry per line, oldest first; a line break in an entry is \n there and a backslash is \\. It is for its
// owner alone (0600). Several programs may add to it at once.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace conclave {

class History {
 public:
  static constexpr std::size_t kMaxEntries = 1000;

  // An empty path: in memory alone.
  explicit History(std::filesystem::path file);

  // Blank lines and a repetition of the last line are not kept.
  void add(const std::string& line);

  const std::vector<std::string>& entries() const { return entries_; }  // oldest first

 private:
  void load();
  void rewrite() const;
  void append(const std::string& line) const;

  std::filesystem::path file_;
  std::vector<std::string> entries_;
};

// $XDG_STATE_HOME/conclave/history, or ~/.local/state/conclave/history; empty where there is no home.
std::filesystem::path default_history_file();

}  // namespace conclave
