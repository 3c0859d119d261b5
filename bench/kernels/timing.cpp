#include "bench/kernels/timing.h"

#include <algorithm>
#include <chrono>

namespace conclave::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kProgramUs = 5e3;  // of a program of short ops
constexpr double kLongUs = 200e3;   // an op this long is a program by itself
constexpr double kTurnUs = 20e3;
constexpr std::int64_t kMaxRepeats = 64;  // of an op that has one slot

double run_us(Executable& program) {
  const auto start = Clock::now();
  program.run();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Series {
  std::vector<double> us;
  double total_us = 0;

  void add(const Rotation::Run& run) {
    us.push_back(run.us);
    total_us += run.us * static_cast<double>(run.ops);
  }
  bool enough(const TimeBudget& budget) const {
    return total_us >= budget.seconds * 1e6 && static_cast<std::int64_t>(us.size()) >= budget.samples;
  }
};

}  // namespace

Timing timing_of(std::vector<double> us) {
  if (us.empty()) return {};
  const auto middle = us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2);
  const double best = *std::min_element(us.begin(), us.end());
  std::nth_element(us.begin(), middle, us.end());
  double median = *middle;
  if (us.size() % 2 == 0) median = (median + *std::max_element(us.begin(), middle)) / 2;
  return {.median_us = median, .best_us = best, .samples = static_cast<std::int64_t>(us.size())};
}

std::int64_t ops_per_program(double us, std::int64_t slots) {
  if (us >= kLongUs) return 1;
  const auto fit = static_cast<std::int64_t>(kProgramUs / std::max(us, 0.01));
  // Two at least where there are two: they share their scratch, as the layers of a model do.
  return std::clamp<std::int64_t>(fit, std::min<std::int64_t>(slots, 2), std::max(slots, kMaxRepeats));
}

Rotation::Rotation(Device& device, std::span<const Op> slots) {
  double us = 0;
  {
    Program first;
    first.record(slots.front());
    const std::unique_ptr<Executable> program = device.compile(first);
    us = run_us(*program);
    if (us < kLongUs) us = run_us(*program);
  }
  const auto n_slots = static_cast<std::int64_t>(slots.size());
  const std::int64_t per_program = ops_per_program(us, n_slots);
  for (std::int64_t at = 0; at < n_slots; at += per_program) {
    Program program;
    for (std::int64_t i = at; i < at + per_program; ++i) program.record(slots[static_cast<std::size_t>(i % n_slots)]);
    parts_.push_back({.program = device.compile(program), .ops = per_program});
  }
}

Rotation::Run Rotation::run() {
  const Part& part = parts_[next_];
  next_ = (next_ + 1) % parts_.size();
  return {.us = run_us(*part.program) / static_cast<double>(part.ops), .ops = part.ops};
}

Timing time_rotation(Rotation& rotation, const TimeBudget& budget) {
  return time_interleaved({&rotation, 1}, budget).front();
}

std::vector<Timing> time_interleaved(std::span<Rotation> rotations, const TimeBudget& budget,
                                     const std::function<void()>& each_round) {
  std::vector<Series> series(rotations.size());
  std::vector<bool> is_long;
  for (Rotation& rotation : rotations) {
    const Rotation::Run warm = rotation.run();
    is_long.push_back(warm.us * static_cast<double>(warm.ops) >= kTurnUs);
  }
  const auto enough = [&](const Series& s) { return s.enough(budget); };
  while (!std::all_of(series.begin(), series.end(), enough)) {
    if (each_round) each_round();
    for (std::size_t i = 0; i < rotations.size(); ++i) {
      if (enough(series[i])) continue;
      // After a turn of another device its threads are awake for a moment and these sleep: one run outside the count,
      // where that would show.
      if (rotations.size() > 1 && !is_long[i]) rotations[i].run();
      for (double turn_us = 0; turn_us < kTurnUs;) {
        const Rotation::Run run = rotations[i].run();
        series[i].add(run);
        turn_us += std::max(run.us * static_cast<double>(run.ops), 1.0);
      }
    }
  }
  std::vector<Timing> timings;
  timings.reserve(series.size());
  for (Series& s : series) timings.push_back(timing_of(std::move(s.us)));
  return timings;
}

}  // namespace conclave::bench
