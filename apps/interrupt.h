// Ctrl-C while a file is written: the work stops at the next step, and what was written is removed before the program
// ends.
#pragma once

#include <csignal>
#include <functional>

namespace conclave {

// A step may take a while. Who asks twice may not want to wait, where there is nothing to be tidied up.
enum class SecondInterrupt { waits, ends_the_program };

// While one lives, SIGINT, SIGTERM and SIGHUP are remembered instead of ending the program (SIGHUP only where it is not
// ignored: nohup), and SIGXFSZ does not end it either: a file that grows past its limit is an error of write() like a
// full disk. One at a time.
class InterruptGuard {
 public:
  explicit InterruptGuard(SecondInterrupt second = SecondInterrupt::waits);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  int signal() const;                // the first that came, or 0
  void stop_if_interrupted() const;  // throws Error("interrupted")
  // For the end of main: 128 and the signal, as shells have it.
  int exit_code() const { return 128 + signal(); }

 private:
  struct sigaction before_[4]{};
};

// Runs `work` under a guard and gives its exit code. Where it threw after a signal, that is told in one line, and the
// exit code is the signal's.
int run_guarded(const std::function<int(const InterruptGuard&)>& work);

}  // namespace conclave
