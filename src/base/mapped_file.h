// A regular file opened for reading: bounded reads for what must be checked, a mapping for what is large.
//
// A read of a file that was cut short is a short read; a mapping of one is SIGBUS. So headers are read with read_at(),
// and whoever hands out mapped bytes asks require_not_shrunk() first. (A file cut short after that still ends the
// program: nobody can check every load.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace conclave {

class MappedFile {
 public:
  // Throws Error for anything that is not a regular file; never blocks on a FIFO and never opens a device.
  static MappedFile open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::uint64_t size() const { return size_; }              // when it was opened
  const std::string& shown_path() const { return shown_; }  // for messages: one line

  // Fills `into` from `offset` on; gives the bytes read, fewer only where the file ends.
  std::size_t read_at(std::uint64_t offset, std::span<std::byte> into) const;

  // The whole file, mapped at the first call and touched by nobody yet. Empty for an empty file.
  std::span<const std::byte> map();
  std::span<const std::byte> mapped() const {
    return {static_cast<const std::byte*>(mapping_), mapping_ ? mapped_size() : 0};
  }

  void require_not_shrunk() const;

 private:
  MappedFile() = default;
  std::size_t mapped_size() const { return static_cast<std::size_t>(size_); }

  int fd_ = -1;
  std::uint64_t size_ = 0;
  void* mapping_ = nullptr;
  std::string shown_;
};

}  // namespace conclave
