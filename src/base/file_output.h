// A file that appears whole or not at all: it grows under a temporary name beside its target and takes the final name
// in commit(). Destroyed before that, it leaves nothing. Where the target is a link to a file, that file is replaced.
//
// A FIFO or a character device (/dev/null, /dev/stdout) is written through and stays what it is.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace conclave {

// Throws Error where `target` is one of the files `inputs`, by whatever name.
void require_no_input(const std::filesystem::path& target, std::span<const std::filesystem::path> inputs);

class FileOutput {
 public:
  // Throws Error for a directory, a block device and a socket. A FIFO blocks until somebody reads from it.
  explicit FileOutput(std::filesystem::path target);
  FileOutput(FileOutput&& other) noexcept;
  FileOutput& operator=(FileOutput&&) = delete;
  ~FileOutput();

  const std::string& shown_path() const { return shown_; }  // of the target, for messages: one line

  // Where the bytes are until commit(); empty where they are written through.
  const std::filesystem::path& temporary_path() const { return temporary_; }

  void write(std::span<const std::byte> bytes);
  // No more writes; everything is with the operating system. Throws Error where that fails.
  void close();
  void commit();                     // closes if need be, then renames
  void remove_committed() noexcept;  // for a set of files of which a later one could not be committed

 private:
  void create_temporary();
  void flush();
  void write_through(std::span<const std::byte> bytes);

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty once renamed
  bool through_ = false;             // there is no temporary: the bytes go straight to the target
  std::string shown_;
  std::vector<std::byte> buffer_;
  int fd_ = -1;
};

}  // namespace conclave
