// A program at a terminal of ours: a pair of pseudo-terminals, a process behind it, and a screen that does what is
// written to it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "terminal/width.h"

namespace conclave::test {

// Cells of characters; a wide one leaves the next cell empty. Throws at a sequence that it does not know.
class Screen {
 public:
  Screen(int columns, int rows) : columns_(columns), cells_(static_cast<std::size_t>(rows), blank()) {}

  void feed(std::string_view bytes) {
    pending_ += bytes;
    while (!pending_.empty() && step()) {
    }
  }
  int row() const { return row_; }
  int column() const { return column_; }
  std::string line(int row) const {
    std::string text;
    for (const std::string& cell : cells_[static_cast<std::size_t>(row)]) text += cell;
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  }

 private:
  std::vector<std::string> blank() const { return std::vector<std::string>(static_cast<std::size_t>(columns_), " "); }

  bool step() {
    const char first = pending_[0];
    if (first == '\x1b') return escape();
    if (first == '\r') {
      column_ = 0;
    } else if (first == '\n') {
      new_row();
    } else {
      const Utf8Character c = first_character(pending_);
      if (c.length == 0) return false;  // the rest of it is to come
      put(pending_.substr(0, c.length), column_width(c.code));
      pending_.erase(0, c.length);
      return true;
    }
    pending_.erase(0, 1);
    return true;
  }
  void new_row() {
    if (row_ + 1 < static_cast<int>(cells_.size())) {
      ++row_;
    } else {
      cells_.erase(cells_.begin());
      cells_.push_back(blank());
    }
  }
  void put(const std::string& text, int width) {
    if (width == 0) return;
    if (column_ + width > columns_) throw std::runtime_error("a row that is too long");
    auto& cells = cells_[static_cast<std::size_t>(row_)];
    cells[static_cast<std::size_t>(column_)] = text;
    if (width == 2) cells[static_cast<std::size_t>(column_) + 1] = "";
    column_ += width;  // may be one past the last: the next character would be an error
  }
  bool escape() {
    std::size_t end = 2;
    while (end < pending_.size() && pending_[end] < 0x40) ++end;
    if (end >= pending_.size()) return false;
    const std::string parameters = pending_.substr(2, end - 2);
    const char kind = pending_[end];
    const int n = std::max(1, std::atoi(parameters.c_str()));
    if (kind == 'A') {
      row_ = std::max(0, row_ - n);
    } else if (kind == 'C') {
      column_ = std::min(columns_ - 1, column_ + n);
    } else if (kind == 'H') {
      row_ = column_ = 0;
    } else if (kind == 'J') {
      auto& cells = cells_[static_cast<std::size_t>(row_)];
      const int from = parameters == "2" ? 0 : column_;
      for (int i = from; i < columns_; ++i) cells[static_cast<std::size_t>(i)] = " ";
      for (std::size_t i = parameters == "2" ? 0 : static_cast<std::size_t>(row_) + 1; i < cells_.size(); ++i) {
        cells_[i] = blank();
      }
    } else if (kind != 'h' && kind != 'l') {
      throw std::runtime_error("an unknown sequence: " + pending_.substr(1, end));
    }
    pending_.erase(0, end + 1);
    return true;
  }

  int columns_;
  std::vector<std::vector<std::string>> cells_;
  int row_ = 0;
  int column_ = 0;
  std::string pending_;
};

// Runs `body` in a process whose standard streams are a terminal of the given size. What it writes to the descriptor that
// it is given comes out of report().
class PtyProgram {
 public:
  using Body = std::function<void(int report_fd)>;

  PtyProgram(const Body& body, int columns, int rows) : screen(columns, rows) {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
    if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) throw std::runtime_error("no terminal");
    const std::string name = ::ptsname(master_);
    slave_ = ::open(name.c_str(), O_RDWR | O_NOCTTY);  // kept open: the modes can be asked for after the program's end
    int ends[2];
    if (slave_ < 0 || ::pipe(ends) != 0) throw std::runtime_error("no terminal");
    resize(columns, rows);
    process_ = ::fork();
    if (process_ == 0) {
      ::setsid();
      ::ioctl(slave_, TIOCSCTTY, 0);
      for (const int fd : {0, 1, 2}) ::dup2(slave_, fd);
      ::close(master_);
      ::close(slave_);
      ::close(ends[0]);
      ::setenv("TERM", "xterm", 1);
      for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGTSTP}) {
        ::signal(signal, SIG_DFL);  // a job in the background has some of them ignored
      }
      body(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    report_fd_ = ends[0];
  }
  PtyProgram(const PtyProgram&) = delete;
  PtyProgram& operator=(const PtyProgram&) = delete;
  ~PtyProgram() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    for (const int fd : {master_, slave_, report_fd_}) ::close(fd);
  }

  pid_t process() const { return process_; }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(master_, bytes.data(), bytes.size());
      if (count <= 0) throw std::runtime_error("cannot type");
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }
  void resize(int columns, int rows) const {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(rows);
    ::ioctl(slave_, TIOCSWINSZ, &size);
  }
  termios modes() const {
    termios now{};
    ::tcgetattr(slave_, &now);
    return now;
  }
  bool raw() const { return (modes().c_lflag & ICANON) == 0; }

  // Reads what the program shows and reports until `done`; false where that takes too long.
  bool until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      pollfd wait[] = {{.fd = master_, .events = POLLIN, .revents = 0},
                       {.fd = report_open_ ? report_fd_ : -1, .events = POLLIN, .revents = 0}};
      ::poll(wait, 2, 20);
      char bytes[4096];
      if ((wait[0].revents & POLLIN) != 0) {
        const ssize_t count = ::read(master_, bytes, sizeof bytes);
        if (count > 0) {
          shown.append(bytes, static_cast<std::size_t>(count));
          screen.feed({bytes, static_cast<std::size_t>(count)});
        }
      }
      if ((wait[1].revents & (POLLIN | POLLHUP)) != 0) {
        const ssize_t count = ::read(report_fd_, bytes, sizeof bytes);
        if (count > 0) report.append(bytes, static_cast<std::size_t>(count));
        report_open_ = count > 0;
      }
    }
    return true;
  }
  // Waits for the process; gives its status as waitpid does.
  int finish() {
    int status = -1;
    until([&] { return ::waitpid(process_, &status, WNOHANG) == process_; });
    until([&] { return !report_open_; });
    process_ = -1;
    return status;
  }

  Screen screen;
  std::string shown;   // everything that came to the terminal
  std::string report;  // everything that was reported

 private:
  int master_ = -1;
  int slave_ = -1;
  int report_fd_ = -1;
  bool report_open_ = true;
  pid_t process_ = -1;
};

}  // namespace conclave::test
