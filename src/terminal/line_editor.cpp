#include "terminal/line_editor.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "terminal/raw_mode.h"
#include "terminal/style.h"

namespace conclave {
namespace {

constexpr int kEscapeMs = 50;  // after this long without more, Escape was a key
constexpr std::size_t kLongestPlainLine = std::size_t{256} << 20;
constexpr std::string_view kQuitHint = "(Ctrl-C again or Ctrl-D quits)";

bool is_interactive(const LineEditorOptions& options) {
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal != nullptr && std::strcmp(terminal, "dumb") == 0;
  return !dumb && ::isatty(options.in_fd) == 1 && ::isatty(options.out_fd) == 1;
}

// Bytes read; 0 at the end, which is also what a terminal that is gone gives.
std::size_t read_some(int fd, char* into, std::size_t room) {
  for (;;) {
    const ssize_t count = ::read(fd, into, room);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno == EIO) return 0;
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd wait{.fd = fd, .events = POLLIN, .revents = 0};
      ::poll(&wait, 1, -1);
    } else if (errno != EINTR) {
      fail(ErrorCode::io, "cannot read the input: {}", std::strerror(errno));
    }
  }
}

void append_move(std::string& out, std::size_t distance, char direction) {
  if (distance > 0) out += fmt::format("\x1b[{}{}", distance, direction);
}

}  // namespace

LineEditor::LineEditor(LineEditorOptions options)
    : options_(std::move(options)),
      interactive_(is_interactive(options_)),
      history_(interactive_ ? options_.history_file : std::filesystem::path()) {}

std::optional<std::string> LineEditor::read_line(std::string_view prompt) {
  if (!interactive_) return read_plain(prompt);
  prompt_ = prompt;
  buffer_.set("");
  draft_.clear();
  place_ = history_.entries().size();
  interrupted_ = false;
  cursor_row_ = 0;
  int fatal_signal = 0;
  Step step = Step::quit;
  {
    const SignalPipe signals;
    RawMode raw(options_.in_fd, options_.out_fd);
    if (!raw.ok()) fail(ErrorCode::io, "cannot set up the terminal: {}", std::strerror(errno));
    draw();
    step = edit(raw, signals, fatal_signal);
    draw(true);
    write("\r\n");
  }
  if (fatal_signal != 0) ::raise(fatal_signal);  // where that does not end the program, it is the end of the lines
  if (fatal_signal != 0 || step == Step::quit) return std::nullopt;
  history_.add(buffer_.text());
  return buffer_.text();
}

std::optional<std::string> LineEditor::read_plain(std::string_view prompt) {
  if (::isatty(options_.in_fd) == 1 && ::isatty(options_.out_fd) == 1) write(prompt);
  std::size_t scanned = given_;
  for (;;) {
    const std::size_t end = pending_.find('\n', scanned);
    if (end != std::string::npos) {
      std::string line = pending_.substr(given_, end - given_);
      given_ = end + 1;
      return line;
    }
    pending_.erase(0, std::exchange(given_, 0));  // once for each block that is read, not for each line
    scanned = pending_.size();
    if (pending_.size() > kLongestPlainLine) fail(ErrorCode::invalid_argument, "a line of the input is too long");
    char bytes[65536];
    const std::size_t count = read_some(options_.in_fd, bytes, sizeof bytes);
    if (count == 0 && pending_.empty()) return std::nullopt;
    if (count == 0) return std::exchange(pending_, {});  // a last line without a line break
    pending_.append(bytes, count);
  }
}

LineEditor::Step LineEditor::edit(RawMode& raw, const SignalPipe& signals, int& fatal_signal) {
  for (;;) {
    // Keys that are here already, and one drawing for all of them.
    bool changed = false;
    while (const std::optional<KeyPress> key = decoder_.next()) {
      const Step step = press(*key, raw, signals);
      if (step != Step::more) return step;
      changed = true;
    }
    pollfd wait[] = {{.fd = options_.in_fd, .events = POLLIN, .revents = 0},
                     {.fd = signals.fd(), .events = POLLIN, .revents = 0}};
    if (changed && ::poll(wait, 2, 0) == 0) draw();
    const int ready = ::poll(wait, 2, decoder_.escape_pending() ? kEscapeMs : -1);
    if (ready < 0 && errno != EINTR) fail(ErrorCode::io, "cannot wait for input: {}", std::strerror(errno));
    if (ready < 0) continue;
    if (ready == 0) decoder_.drop_escape();
    while (const std::optional<int> signal = signals.next()) {
      if (*signal == SIGTSTP) {
        suspend(raw, signals);
      } else if (*signal == SIGCONT || *signal == SIGWINCH) {
        if (*signal == SIGCONT) raw.enter();  // the shell may have changed the modes
        draw();
      } else {
        fatal_signal = *signal;
        return Step::quit;
      }
    }
    if ((wait[0].revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) == 0) continue;
    char bytes[4096];
    const std::size_t count = read_some(options_.in_fd, bytes, sizeof bytes);
    if (count == 0) return Step::quit;
    decoder_.feed({bytes, count});
  }
}

LineEditor::Step LineEditor::press(const KeyPress& key, RawMode& raw, const SignalPipe& signals) {
  if (key.key == Key::interrupt) return interrupt();
  interrupted_ = false;
  switch (key.key) {
    case Key::text:
      buffer_.insert(key.text);
      break;
    case Key::enter:
      return Step::line;
    case Key::left:
      buffer_.left();
      break;
    case Key::right:
      buffer_.right();
      break;
    case Key::word_left:
      buffer_.word_left();
      break;
    case Key::word_right:
      buffer_.word_right();
      break;
    case Key::home:
      buffer_.home();
      break;
    case Key::end:
      buffer_.end();
      break;
    case Key::up:
      if (!buffer_.line_up()) browse(-1);
      break;
    case Key::down:
      if (!buffer_.line_down()) browse(1);
      break;
    case Key::backspace:
      buffer_.backspace();
      break;
    case Key::del:
      buffer_.del();
      break;
    case Key::kill_to_start:
      buffer_.kill_to_start();
      break;
    case Key::kill_to_end:
      buffer_.kill_to_end();
      break;
    case Key::kill_word_left:
      buffer_.kill_word_left();
      break;
    case Key::kill_word_right:
      buffer_.kill_word_right();
      break;
    case Key::yank:
      buffer_.yank();
      break;
    case Key::clear_screen:
      write("\x1b[H\x1b[2J");
      cursor_row_ = 0;
      break;
    case Key::end_of_file:
      if (buffer_.empty()) return Step::quit;
      buffer_.del();
      break;
    case Key::suspend:
      suspend(raw, signals);
      break;
    case Key::interrupt:
      break;  // above
  }
  return Step::more;
}

LineEditor::Step LineEditor::interrupt() {
  if (!buffer_.empty()) {
    buffer_.set("");
    place_ = history_.entries().size();
  } else if (interrupted_) {
    return Step::quit;
  } else {
    draw(true);
    write("\r\n");
    write(kQuitHint);
    write("\r\n");
    cursor_row_ = 0;
  }
  interrupted_ = true;
  return Step::more;
}

void LineEditor::suspend(RawMode& raw, const SignalPipe& signals) {
  draw(true);
  write("\r\n");
  raw.leave();
  signals.stop();
  raw.enter();
  cursor_row_ = 0;
  draw();
}

// -1: an older line, 1: a newer one; after the newest comes what was being typed.
void LineEditor::browse(int direction) {
  const std::vector<std::string>& entries = history_.entries();
  if (direction < 0 ? place_ == 0 : place_ == entries.size()) return;
  if (place_ == entries.size()) draft_ = buffer_.text();
  place_ = direction < 0 ? place_ - 1 : place_ + 1;
  buffer_.set(place_ == entries.size() ? draft_ : entries[place_]);
}

// All of it anew, in one write: from the first row that was drawn to the end of the screen. Of a text with more rows than
// the screen has, those that end with the cursor's are shown.
void LineEditor::draw(bool at_end) {
  const TerminalSize size = terminal_size(options_.out_fd);
  const std::size_t cursor = at_end ? buffer_.text().size() : buffer_.cursor();
  const LineLayout layout = lay_out(prompt_, buffer_.text(), cursor, size.columns);
  const auto shown = static_cast<std::size_t>(std::max(size.rows, 1));
  const std::size_t first = layout.cursor_row >= shown ? layout.cursor_row - shown + 1 : 0;
  const std::size_t end = std::min(layout.rows.size(), first + shown);
  std::string out;
  append_move(out, cursor_row_, 'A');
  out += "\r\x1b[J";
  for (std::size_t row = first; row < end; ++row) {
    if (row > first) out += "\r\n";
    out += layout.rows[row];
  }
  append_move(out, end - 1 - layout.cursor_row, 'A');
  out += '\r';
  append_move(out, static_cast<std::size_t>(layout.cursor_column), 'C');
  cursor_row_ = layout.cursor_row - first;
  write(out);
}

// A terminal that is gone shows itself when it is read from.
void LineEditor::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(options_.out_fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      pollfd wait{.fd = options_.out_fd, .events = POLLOUT, .revents = 0};
      ::poll(&wait, 1, -1);
      continue;
    }
    if (count < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace conclave
