// How the host waits for a program: asleep for most of it, awake when it ends.
//
// cudaStreamSynchronize spins, which is a core for every process that decodes. Having CUDA block instead leaves the core
// alone, but the thread comes back by an interrupt, tens of microseconds late, in every step of a millisecond. The steps of
// a decode take nearly the same time, though: a program's last time says when to be awake, so the host sleeps until
// shortly before that and looks again and again from then on. Where a program ends at another time than it did before, the
// host is late by one nap: a quarter of a millisecond or a sixteenth of the time so far, whichever is more.
//
// This class decides and does nothing itself; StreamWait goes by it. Times are since the program could start.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

namespace conclave::cuda {

class WaitPlan {
 public:
  using Time = std::chrono::nanoseconds;

  // What will be waited for: only its address counts.
  void begin(const void* program) {
    for (std::size_t i = 0; i < known_.size(); ++i) {
      if (known_[i].program == program) {
        now_ = i;
        return;
      }
    }
    now_ = oldest_;
    oldest_ = (oldest_ + 1) % known_.size();
    known_[now_] = {program, Time{}};
  }

  // How long to sleep at `time`; 0: not at all.
  Time next(Time time) const {
    const Time usual = known_[now_].usual;
    const Time awake = usual - late_ - std::max(kShortest, usual / kAwake);
    if (usual == Time{} || time > usual + usual / 8 + kSlack) return std::max(kShortest, time / 32);
    if (time + kShortest > awake) return Time{};
    return std::min(awake - time, std::max(kNap, time / 16));
  }
  // To sleep for `asked` took that long: timers and sleeping cores need some time of their own.
  void slept(Time asked, Time took) { late_ = std::clamp(took - asked, late_, std::max(late_, kNap)); }
  // The end was seen at `time`.
  void end(Time time) {
    known_[now_].usual = time;
    late_ -= late_ / 64;  // so that one bad moment is forgotten
  }

 private:
  static constexpr int kAwake = 6;  // for a sixth of a step the host looks: a sleep that is late costs more
  static constexpr Time kShortest = std::chrono::microseconds(20);  // what is worth sleeping for
  static constexpr Time kNap = std::chrono::microseconds(250);
  static constexpr Time kSlack = std::chrono::microseconds(50);

  struct Known {
    const void* program = nullptr;
    Time usual{};  // its last time; 0 where it has none yet
  };
  std::array<Known, 8> known_;  // a decode runs a few programs in turn
  std::size_t now_ = 0;
  std::size_t oldest_ = 0;
  Time late_{};  // how much longer than asked for a sleep may take
};

}  // namespace conclave::cuda
