#include "base/file_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"

namespace conclave {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kBufferBytes = 256 * 1024;
constexpr int kNameAttempts = 1000;

[[noreturn]] void cannot(const std::string& shown, const char* action) {
  fail(ErrorCode::io, "{}: cannot {}: {}", shown, action, std::strerror(errno));
}

std::string shown(const fs::path& path) {
  return printable(path.native(), std::numeric_limits<std::size_t>::max());
}

}  // namespace

void require_no_input(const fs::path& target, std::span<const fs::path> inputs) {
  for (const fs::path& input : inputs) {
    std::error_code none;  // one that is not there is no input
    if (fs::equivalent(target, input, none)) {
      fail(ErrorCode::invalid_argument, "{}: the output is the input; give it another name", shown(target));
    }
  }
}

FileOutput::FileOutput(fs::path target) : target_(std::move(target)), shown_(shown(target_)) {
  if (target_.native().find('\0') != std::string::npos || !target_.has_filename()) {
    fail(ErrorCode::invalid_argument, "{}: not the name of a file", shown_);
  }
  buffer_.reserve(kBufferBytes);
  std::error_code code;
  switch (fs::status(target_, code).type()) {
    case fs::file_type::fifo:
    case fs::file_type::character:
      through_ = true;
      fd_ = ::open(target_.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
      if (fd_ < 0) cannot(shown_, "open");
      return;
    case fs::file_type::directory:
      fail(ErrorCode::invalid_argument, "{}: is a directory", shown_);
    case fs::file_type::block:
    case fs::file_type::socket:
      fail(ErrorCode::invalid_argument, "{}: is a block device or a socket", shown_);
    case fs::file_type::regular:
      if (const fs::path followed = fs::canonical(target_, code); fs::is_symlink(target_) && !code) target_ = followed;
      break;
    default:  // it is not there, or creating it will say what is wrong
      break;
  }
  create_temporary();
}

void FileOutput::create_temporary() {
  // Not mkstemp: its files are for the owner alone, and the result is to follow the umask like any other file.
  for (int attempt = 0; attempt < kNameAttempts && fd_ < 0; ++attempt) {
    temporary_ = target_;
    temporary_ += fmt::format(".tmp-{}-{}", ::getpid(), attempt);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST) break;
  }
  if (fd_ < 0) {
    temporary_.clear();
    cannot(shown_, "create");
  }
}

FileOutput::FileOutput(FileOutput&& other) noexcept
    : target_(std::move(other.target_)),
      temporary_(std::exchange(other.temporary_, {})),
      through_(other.through_),
      shown_(std::move(other.shown_)),
      buffer_(std::move(other.buffer_)),
      fd_(std::exchange(other.fd_, -1)) {}

FileOutput::~FileOutput() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void FileOutput::write(std::span<const std::byte> bytes) {
  CONCLAVE_CHECK(fd_ >= 0, "write after close");
  if (bytes.size() > kBufferBytes - buffer_.size()) flush();
  if (bytes.size() >= kBufferBytes) {
    write_through(bytes);
  } else {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }
}

void FileOutput::flush() {
  write_through(buffer_);
  buffer_.clear();
}

void FileOutput::write_through(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) cannot(shown_, "write");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void FileOutput::close() {
  if (fd_ < 0) return;
  flush();
  buffer_ = {};
  // No fsync: the temporary name guards against failures of this program, and a model can be written again after a
  // power cut. Errors that a network file system kept back come out of close().
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) cannot(shown_, "write");
}

void FileOutput::commit() {
  close();
  if (through_) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) cannot(shown_, "give the finished file its name");
  temporary_.clear();
}

void FileOutput::remove_committed() noexcept {
  if (temporary_.empty() && !through_) ::unlink(target_.c_str());
}

}  // namespace conclave
