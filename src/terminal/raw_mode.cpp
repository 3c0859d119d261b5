#include "terminal/raw_mode.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/fail.h"

namespace conclave {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};

// A signal handler is given nothing but the number: the end of the pipe has to lie where it can find it.
std::atomic<int> signal_pipe_fd = -1;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void conclave_signal_to_pipe(int signal) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(signal);
  // A full pipe has signals enough.
  [[maybe_unused]] const ssize_t count = ::write(signal_pipe_fd.load(std::memory_order_relaxed), &byte, 1);
  errno = saved;
}

void write_best(int fd, std::string_view bytes) noexcept {
  [[maybe_unused]] const ssize_t count = ::write(fd, bytes.data(), bytes.size());
}

}  // namespace

RawMode::RawMode(int in_fd, int out_fd) : in_fd_(in_fd), out_fd_(out_fd) {
  ok_ = ::tcgetattr(in_fd, &before_) == 0;
  if (ok_) enter();
}

void RawMode::enter() {
  termios raw = before_;
  raw.c_iflag &= ~static_cast<tcflag_t>(BRKINT | ICRNL | INLCR | IGNCR | INPCK | ISTRIP | IXON);
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ECHONL | ICANON | IEXTEN | ISIG);
  raw.c_cflag |= CS8;  // output stays cooked: what other threads print keeps its line breaks
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  ok_ = ::tcsetattr(in_fd_, TCSADRAIN, &raw) == 0;  // what was typed ahead stays
  entered_ = ok_;
  if (entered_) write_best(out_fd_, "\x1b[?2004h");
}

void RawMode::leave() noexcept {
  if (!entered_) return;
  entered_ = false;
  write_best(out_fd_, "\x1b[?2004l");
  ::tcsetattr(in_fd_, TCSADRAIN, &before_);
}

SignalPipe::SignalPipe() {
  int ends[2];
  if (::pipe(ends) != 0) fail(ErrorCode::io, "cannot make a pipe: {}", std::strerror(errno));
  read_fd_ = ends[0];
  write_fd_ = ends[1];
  for (const int fd : ends) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  int none = -1;
  CONCLAVE_CHECK(signal_pipe_fd.compare_exchange_strong(none, write_fd_), "a second SignalPipe");
  for (const int signal : kSignals) {
    Previous previous{.signal = signal, .action = {}};
    if (::sigaction(signal, nullptr, &previous.action) != 0) continue;
    const bool ignored = (previous.action.sa_flags & SA_SIGINFO) == 0 && previous.action.sa_handler == SIG_IGN;
    if (ignored) continue;
    struct sigaction action {};
    action.sa_handler = conclave_signal_to_pipe;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    if (::sigaction(signal, &action, nullptr) == 0) previous_.push_back(previous);
  }
}

SignalPipe::~SignalPipe() {
  for (const Previous& previous : previous_) ::sigaction(previous.signal, &previous.action, nullptr);
  signal_pipe_fd.store(-1);
  ::close(read_fd_);
  ::close(write_fd_);
}

std::optional<int> SignalPipe::next() const {
  unsigned char byte = 0;
  if (::read(read_fd_, &byte, 1) != 1) return std::nullopt;
  return byte;
}

// The signal may reach another thread first, and it does nothing in a process group without a shell: so this waits until
// SIGCONT has come through the pipe, but not for ever.
void SignalPipe::stop() const {
  constexpr int kPatienceMs = 200;
  struct sigaction stopping {};
  struct sigaction watching {};
  stopping.sa_handler = SIG_DFL;
  ::sigemptyset(&stopping.sa_mask);
  if (::sigaction(SIGTSTP, &stopping, &watching) != 0) return;
  ::kill(0, SIGTSTP);
  pollfd pipe{.fd = read_fd_, .events = POLLIN, .revents = 0};
  ::poll(&pipe, 1, kPatienceMs);
  ::sigaction(SIGTSTP, &watching, nullptr);
}

}  // namespace conclave
