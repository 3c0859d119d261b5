#include "base/thread_pool.h"

#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <system_error>

#include "base/cpu.h"
#include "base/fail.h"

namespace conclave {
namespace {

using Clock = std::chrono::steady_clock;

// How long a worker without work stays awake: longer than what a caller does between two steps that follow each other,
// because waking a sleeper takes some 40 us (2 threads, Zen 4).
constexpr auto kIdleSpin = std::chrono::microseconds(100);
constexpr int kPausesPerClock = 64;  // looking at the clock costs as much as one or two pauses

// In a barrier: pauses before the first yield. 25 us on Zen 4 (measured), about 50 us on Intel since Skylake: longer
// than a phase is uneven, and an end to it where another process has taken the CPU of a rank we wait for.
constexpr int kPauses = 1000;
constexpr int kPausesCrowded = 16;
constexpr int kIdleYieldsCrowded = 16;

#if defined(__x86_64__)
void pause() noexcept {
  __builtin_ia32_pause();
}
#elif defined(__aarch64__)
// Not YIELD, which most cores run as a NOP.
void pause() noexcept {
  __asm__ volatile("isb" ::: "memory");
}
#else
void pause() noexcept {}
#endif

#if defined(__linux__)
struct CpuSet {
  static constexpr std::size_t kSets = 64;  // as many CPUs as allowed_cpus() can name
  cpu_set_t sets[kSets] = {};
};

// Best effort: a CPU that was taken away since it was listed only costs speed.
void pin_this_thread(int cpu) noexcept {
  CpuSet one;
  CPU_SET_S(static_cast<std::size_t>(cpu), sizeof(one), one.sets);
  ::sched_setaffinity(0, sizeof(one), one.sets);
}

// Moves the calling thread off the CPUs in `taken`, if it stands on one and may run on another; its affinity stays.
void step_aside(std::span<const int> taken) noexcept {
  const int here = ::sched_getcpu();
  if (std::find(taken.begin(), taken.end(), here) == taken.end()) return;
  CpuSet mask;
  if (::sched_getaffinity(0, sizeof(mask), mask.sets) != 0) return;
  CpuSet others = mask;
  for (const int cpu : taken) CPU_CLR_S(static_cast<std::size_t>(cpu), sizeof(others), others.sets);
  if (CPU_COUNT_S(sizeof(others), others.sets) == 0) return;
  ::sched_setaffinity(0, sizeof(others), others.sets);
  ::sched_setaffinity(0, sizeof(mask), mask.sets);
}
#else
void pin_this_thread(int) noexcept {}
void step_aside(std::span<const int>) noexcept {}
#endif

template <class Done>
bool done_within(int pauses, Done&& done) noexcept {
  for (int i = 0; i < pauses; ++i) {
    if (done()) return true;
    pause();
  }
  return false;
}

int checked_size(int threads) {
  if (threads < 1 || threads > ThreadPool::kMaxThreads) {
    fail(ErrorCode::invalid_argument, "{} threads: must be 1 to {}", threads, ThreadPool::kMaxThreads);
  }
  return threads;
}

}  // namespace

ThreadPool::ThreadPool(int threads) : size_(checked_size(threads)) {
  if (size_ == 1) return;
  const auto n_threads = static_cast<std::size_t>(size_);
  const std::vector<int> cpus = cpus_by_core();
  crowded_ = n_threads > cpus.size();
  if (!crowded_) pinned_.assign(cpus.begin() + 1, cpus.begin() + size_);
  workers_.reserve(n_threads - 1);
  try {
    for (int rank = 1; rank < size_; ++rank) {
      workers_.emplace_back([this, rank] { work(rank); });
    }
  } catch (const std::exception& error) {  // system_error, or bad_alloc for the thread's own state
    const std::size_t started = workers_.size();
    stop();
    fail(ErrorCode::io, "cannot start thread {} of {}: {}", started + 2, size_, error.what());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() noexcept {
  call_ = nullptr;
  start_.fetch_add(1);
  start_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void ThreadPool::run_erased(Call call, void* body) {
  const std::lock_guard lock(one_run_);
  if (size_ == 1) return call(body, 0);
  // The scheduler would leave rank 0 to share a worker's CPU for milliseconds, beside an idle one. 2 threads on 2 CPUs
  // (Zen 4, Linux 6.18), runs with one barrier: the first takes 57 us with this and 135 us without, the next hundred
  // 0.2 us each and 91 us.
  step_aside(pinned_);
  call_ = call;
  body_ = body;
  start_.fetch_add(1);  // sequentially consistent, as notify_all's look at who sleeps must come after it
  start_.notify_all();  // no system call where nobody sleeps
  call(body, 0);
  wait_awake([&] { return finished_.load(std::memory_order_acquire) == size_ - 1; });
  finished_.store(0, std::memory_order_relaxed);  // the workers see it with the next start
}

void ThreadPool::work(int rank) {
  if (!pinned_.empty()) pin_this_thread(pinned_[static_cast<std::size_t>(rank - 1)]);
  for (std::uint32_t seen = 0;;) {
    seen = wait_for_start(seen);
    if (call_ == nullptr) return;
    call_(body_, rank);
    finished_.fetch_add(1, std::memory_order_release);
  }
}

void ThreadPool::meet() noexcept {
  const std::uint32_t generation = generation_.load(std::memory_order_relaxed);  // stays until this rank has arrived
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    next_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    return;
  }
  wait_awake([&] { return generation_.load(std::memory_order_acquire) != generation; });
}

// Until done(), which other ranks are about to make true.
template <class Done>
void ThreadPool::wait_awake(Done&& done) const noexcept {
  if (done_within(crowded_ ? kPausesCrowded : kPauses, done)) return;
  while (!done()) std::this_thread::yield();
}

// Until start_ is no longer `seen`; gives its new value.
std::uint32_t ThreadPool::wait_for_start(std::uint32_t seen) const noexcept {
  std::uint32_t now = seen;
  const auto started = [&] { return (now = start_.load(std::memory_order_acquire)) != seen; };
  if (crowded_) {
    if (done_within(kPausesCrowded, started)) return now;
    for (int i = 0; i < kIdleYieldsCrowded; ++i) {
      if (started()) return now;
      std::this_thread::yield();
    }
  } else {
    if (done_within(kPausesPerClock, started)) return now;
    for (const auto end = Clock::now() + kIdleSpin; Clock::now() < end;) {
      if (done_within(kPausesPerClock, started)) return now;
    }
  }
  while (!started()) start_.wait(seen, std::memory_order_acquire);
  return now;
}

}  // namespace conclave
