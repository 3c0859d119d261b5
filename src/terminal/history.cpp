#include "terminal/history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include "terminal/key_decoder.h"

namespace conclave {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFileBytes = 4 << 20;    // the end of a larger file is read
constexpr std::size_t kMaxEntryBytes = 64 << 10;  // longer ones stay in memory

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0600)) {
    struct stat facts {};
    const bool regular = fd_ >= 0 && ::fstat(fd_, &facts) == 0 && S_ISREG(facts.st_mode);
    size_ = regular ? static_cast<std::size_t>(facts.st_size) : 0;
    if (!regular) close();
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  bool ok() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  std::size_t size() const { return size_; }

 private:
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int fd_;
  std::size_t size_ = 0;
};

std::string encoded(std::string_view line) {
  std::string out;
  for (const char c : line) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += c;
    }
  }
  return out + "\n";
}

std::string decoded(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size()) {
      ++i;
      out += line[i] == 'n' ? '\n' : line[i];
    } else {
      out += line[i];
    }
  }
  return clean_text(out);
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\n") == std::string_view::npos;
}

// One write, so that the lines of two programs do not mix.
bool write_whole(int fd, std::string_view bytes) {
  return ::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

History::History(fs::path file) : file_(std::move(file)) {
  if (!file_.empty()) load();
}

void History::add(const std::string& line) {
  if (is_blank(line) || (!entries_.empty() && entries_.back() == line)) return;
  if (entries_.size() == kMaxEntries) entries_.erase(entries_.begin());
  entries_.push_back(line);
  if (!file_.empty() && line.size() <= kMaxEntryBytes) append(line);
}

void History::load() {
  std::string bytes;
  {
    const Descriptor file(file_, O_RDONLY);
    if (!file.ok()) return;
    const std::size_t skipped = file.size() > kMaxFileBytes ? file.size() - kMaxFileBytes : 0;
    bytes.resize(file.size() - skipped);
    const ssize_t count = ::pread(file.fd(), bytes.data(), bytes.size(), static_cast<off_t>(skipped));
    bytes.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    if (skipped > 0) bytes.erase(0, bytes.find('\n') == std::string::npos ? bytes.size() : bytes.find('\n') + 1);
  }
  std::vector<std::string> all;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string line = decoded(rest.substr(0, end));
    if (!is_blank(line)) all.push_back(std::move(line));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  const std::size_t n_old = all.size() > kMaxEntries ? all.size() - kMaxEntries : 0;
  entries_.assign(std::make_move_iterator(all.begin() + static_cast<std::ptrdiff_t>(n_old)),
                  std::make_move_iterator(all.end()));
  if (all.size() > 2 * kMaxEntries || bytes.size() > kMaxFileBytes / 2) rewrite();
}

// Under another name first: who reads meanwhile sees all or nothing new.
void History::rewrite() const {
  fs::path fresh = file_;
  fresh += ".new-" + std::to_string(::getpid());
  bool written = false;
  {
    const Descriptor out(fresh, O_WRONLY | O_CREAT | O_EXCL);
    if (!out.ok()) return;
    std::string bytes;
    for (const std::string& line : entries_) {
      if (line.size() <= kMaxEntryBytes) bytes += encoded(line);
    }
    written = write_whole(out.fd(), bytes);
  }
  if (!written || ::rename(fresh.c_str(), file_.c_str()) != 0) ::unlink(fresh.c_str());
}

void History::append(const std::string& line) const {
  std::error_code ignored;
  const fs::path folder = file_.parent_path();
  if (!folder.empty() && fs::create_directories(folder, ignored)) {
    fs::permissions(folder, fs::perms::owner_all, ignored);
  }
  const Descriptor out(file_, O_WRONLY | O_CREAT | O_APPEND);
  if (!out.ok()) return;
  static_cast<void>(::fchmod(out.fd(), 0600));
  static_cast<void>(write_whole(out.fd(), encoded(line)));
}

fs::path default_history_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return fs::path(state) / "conclave" / "history";
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return fs::path(home) / ".local" / "state" / "conclave" / "history";
  return {};
}

}  // namespace conclave
