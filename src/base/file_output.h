// A file that appears whole or not at all: it grows under a temporary name beside its target and takes the final name
// in commit(). Destroyed before that, it leaves nothing.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace conclave {

class FileOutput {
 public:
  explicit FileOutput(std::filesystem::path target);
  FileOutput(FileOutput&& other) noexcept;
  FileOutput& operator=(FileOutput&&) = delete;
  ~FileOutput();

  const std::string& shown_path() const { return shown_; }  // of the target, for messages: one line

  // Where the bytes are until commit().
  const std::filesystem::path& temporary_path() const { return temporary_; }

  void write(std::span<const std::byte> bytes);
  // No more writes; everything is with the operating system. Throws Error where that fails.
  void close();
  void commit();                     // closes if need be, then renames
  void remove_committed() noexcept;  // for a set of files of which a later one could not be committed

 private:
  void flush();
  void write_through(std::span<const std::byte> bytes);

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty once renamed
  std::string shown_;
  std::vector<std::byte> buffer_;
  int fd_ = -1;
};

}  // namespace conclave
