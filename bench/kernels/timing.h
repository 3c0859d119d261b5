// How runs are timed: as a model runs them, several ops in one program, over weights that differ from op to op; several
// cases in turns where they are compared.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ops/device.h"

namespace conclave::bench {

struct Timing {  // of one op
  double median_us = 0;
  double best_us = 0;
  std::int64_t samples = 0;
};
Timing timing_of(std::vector<double> us);

struct TimeBudget {
  double seconds = 0.3;  // at least, of each rotation
  std::int64_t samples = 5;
};

// How many ops of about `us` each go into one program: a few milliseconds of them, so that starting the threads is not
// what is measured, and as few as one where an op is long. `slots` of them differ.
std::int64_t ops_per_program(double us, std::int64_t slots);

// The same op over weights that differ from op to op.
class Rotation {
 public:
  // Runs the first slot twice to see how long it takes.
  Rotation(Device& device, std::span<const Op> slots);
  // The next program, once: microseconds for one op, and how many there were.
  struct Run {
    double us = 0;
    std::int64_t ops = 0;
  };
  Run run();

 private:
  struct Part {
    std::unique_ptr<Executable> program;
    std::int64_t ops;
  };
  std::vector<Part> parts_;
  std::size_t next_ = 0;
};

Timing time_rotation(Rotation& rotation, const TimeBudget& budget = {});
// In turns of some milliseconds: what disturbs the machine disturbs all of them. `each_round`, where given, is called
// once before every round of turns: it may measure something else meanwhile.
std::vector<Timing> time_interleaved(std::span<Rotation> rotations, const TimeBudget& budget = {},
                                     const std::function<void()>& each_round = {});

}  // namespace conclave::bench
