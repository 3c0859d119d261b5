// A terminal in raw mode, given back as it was however the scope is left; and the signals that must not end the program
// before that has happened.
#pragma once

#include <signal.h>
#include <termios.h>

#include <optional>
#include <vector>

namespace conclave {

// Keys come one by one, unechoed, and Ctrl-C, Ctrl-Z and Ctrl-\ are keys. Pastes come in brackets.
class RawMode {
 public:
  RawMode(int in_fd, int out_fd);  // ok() is false where `in_fd` is no terminal
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;
  ~RawMode() { leave(); }

  bool ok() const { return ok_; }
  void enter();  // again, after leave() or after somebody else changed the modes
  void leave() noexcept;

 private:
  int in_fd_;
  int out_fd_;
  bool ok_ = false;
  bool entered_ = false;
  termios before_{};
};

// While it lives, the signals SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT and SIGWINCH come as bytes through a
// pipe, whichever thread they reach; those that were ignored stay ignored. Afterwards they do what they did before. One at
// a time in a process.
class SignalPipe {
 public:
  SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;
  ~SignalPipe();

  int fd() const { return read_fd_; }
  std::optional<int> next() const;  // a signal that came, if one did

  // Stops the process group, as Ctrl-Z does; returns when it goes on.
  void stop() const;

 private:
  struct Previous {
    int signal;
    struct sigaction action;
  };
  int read_fd_ = -1;
  int write_fd_ = -1;
  std::vector<Previous> previous_;
};

}  // namespace conclave
