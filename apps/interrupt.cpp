#include "interrupt.h"

#include <unistd.h>

#include <array>
#include <cstdio>

#include "base/fail.h"

namespace conclave {
namespace {

constexpr std::array kRemembered = {SIGINT, SIGTERM, SIGHUP};

// A handler has no other way to tell anyone.
volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t second_ends = 0;

void remember(int number) {
  if (first_signal != 0 && second_ends != 0) ::_exit(128 + number);
  if (first_signal == 0) first_signal = number;
}

}  // namespace

InterruptGuard::InterruptGuard(SecondInterrupt second) {
  first_signal = 0;
  second_ends = second == SecondInterrupt::ends_the_program ? 1 : 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kRemembered.size(); ++i) {
    ::sigaction(kRemembered[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kRemembered[i], &action, nullptr);
  }
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &action, &before_[kRemembered.size()]);
}

InterruptGuard::~InterruptGuard() {
  for (std::size_t i = 0; i < kRemembered.size(); ++i) ::sigaction(kRemembered[i], &before_[i], nullptr);
  ::sigaction(SIGXFSZ, &before_[kRemembered.size()], nullptr);
}

int InterruptGuard::signal() const {
  return first_signal;
}

void InterruptGuard::stop_if_interrupted() const {
  if (first_signal != 0) throw Error(ErrorCode::io, "interrupted: nothing was written");
}

int run_guarded(const std::function<int(const InterruptGuard&)>& work) {
  const InterruptGuard interrupt;
  try {
    return work(interrupt);
  } catch (const Error& error) {
    if (interrupt.signal() == 0) throw;
    std::fputs(fmt::format("error: {}\n", error.what()).c_str(), stderr);
    return interrupt.exit_code();
  }
}

}  // namespace conclave
