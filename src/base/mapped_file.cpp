#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {
namespace {

static_assert(sizeof(std::size_t) == 8 && sizeof(off_t) == 8, "files larger than the address space are not handled");

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

void require_regular(const std::string& shown, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    fail(ErrorCode::bad_file, "{}: this is {}, not a regular file", shown, kind_of(info.st_mode));
  }
}

[[noreturn]] void refuse(const std::string& shown, std::string_view action) {
  fail(ErrorCode::io, "{}: cannot {}: {}", shown, action, std::strerror(errno));
}

}  // namespace

MappedFile MappedFile::open(const std::filesystem::path& path) {
  MappedFile file;
  file.shown_ = printable(path.native(), std::numeric_limits<std::size_t>::max());
  if (path.native().find('\0') != std::string::npos) {
    fail(ErrorCode::invalid_argument, "{}: a path cannot hold a zero byte", file.shown_);
  }
  // Asked before opening, because opening a device may already do something; and asked again after, because the name
  // may have been given to something else in between. O_NONBLOCK: a FIFO that slipped in must not hold us.
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) refuse(file.shown_, "open");
  require_regular(file.shown_, info);
  file.fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file.fd_ < 0) refuse(file.shown_, "open");
  if (::fstat(file.fd_, &info) != 0) refuse(file.shown_, "read its size");
  require_regular(file.shown_, info);
  file.size_ = static_cast<std::uint64_t>(std::max<off_t>(info.st_size, 0));
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(std::exchange(other.size_, 0)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      shown_(std::move(other.shown_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(mapping_, other.mapping_);
  std::swap(shown_, other.shown_);
  return *this;
}

MappedFile::~MappedFile() {
  if (mapping_ != nullptr) ::munmap(mapping_, mapped_size());
  if (fd_ >= 0) ::close(fd_);
}

std::size_t MappedFile::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  std::size_t done = 0;
  while (done < into.size()) {
    const auto position = static_cast<off_t>(offset + done);
    if (position < 0) break;  // past any file
    const ssize_t count = ::pread(fd_, into.data() + done, into.size() - done, position);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(shown_, "read");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

std::span<const std::byte> MappedFile::map() {
  if (mapping_ == nullptr && size_ > 0) {
    void* const address = ::mmap(nullptr, mapped_size(), PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd_, 0);
    if (address == MAP_FAILED) refuse(shown_, "map");
    mapping_ = address;
  }
  return mapped();
}

void MappedFile::require_not_shrunk() const {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) refuse(shown_, "read its size");
  if (info.st_size < 0 || static_cast<std::uint64_t>(info.st_size) < size_) {
    fail(ErrorCode::bad_file, "{}: the file has become shorter since it was opened: {} bytes then, {} now", shown_,
         size_, info.st_size);
  }
}

}  // namespace conclave
