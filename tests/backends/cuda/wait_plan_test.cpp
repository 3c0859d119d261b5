// WaitPlan on a machine of its own: a clock that sleeps too long, and programs that end when they should.
#include "backends/cuda/wait_plan.h"

#include <gtest/gtest.h>

#include "support/rng.h"

namespace conclave::cuda {
namespace {

using Time = WaitPlan::Time;
using std::chrono::microseconds;

constexpr Time kLook = std::chrono::nanoseconds(800);  // to ask the GPU once
constexpr Time kSyscall = microseconds(3);             // of the core, for a sleep

struct Waited {
  Time late{};  // after the end
  Time busy{};  // of the core
};

// Waits for a program that takes `length`; sleeps are longer than asked for by up to `overshoot`.
Waited wait(WaitPlan& plan, const void* program, Time length, Time overshoot, test::Rng& rng) {
  Waited w;
  Time now{};
  plan.begin(program);
  for (;;) {
    now += kLook;
    w.busy += kLook;
    if (now >= length) break;
    const Time nap = plan.next(now);
    if (nap == Time{}) continue;
    const Time took = nap + overshoot * rng.integer(80, 100) / 100;
    plan.slept(nap, took);
    now += took;
    w.busy += kSyscall;
  }
  plan.end(now);
  w.late = now - length;
  return w;
}

TEST(CudaWaitPlan, IsAwakeWhenAStepEndsAndAsleepBefore) {
  const int program = 0;
  for (const Time overshoot : {microseconds(5), microseconds(55), microseconds(120)}) {
    for (const Time length : {microseconds(700), microseconds(1000), microseconds(5000), microseconds(20000)}) {
      test::Rng rng(1);
      WaitPlan plan;
      for (int i = 0; i < 4; ++i) wait(plan, &program, length, overshoot, rng);
      Waited sum;
      constexpr int kSteps = 1000;
      for (int i = 0; i < kSteps; ++i) {  // a little more or less each time, and slowly more
        const Time here = length + length * (rng.integer(-5, 5) + i / 50) / 1000;
        const Waited w = wait(plan, &program, here, overshoot, rng);
        sum.late += w.late;
        sum.busy += w.busy;
      }
      EXPECT_LT(sum.late / kSteps, std::max<Time>(microseconds(2), length / 500)) << length.count();
      EXPECT_LT(sum.busy, length * kSteps * 3 / 10) << length.count() << " " << overshoot.count();
    }
  }
}

TEST(CudaWaitPlan, IsLateByOneNapWhereATimeIsNotTheLastOne) {
  const int program = 0;
  test::Rng rng(2);
  WaitPlan plan;
  const Time overshoot = microseconds(55);
  for (int i = 0; i < 5000; ++i) {
    const Time length = microseconds(rng.integer(0, 3) == 0 ? rng.integer(10, 60000) : rng.integer(900, 1100));
    const Waited w = wait(plan, &program, length, overshoot, rng);
    EXPECT_LT(w.late, std::max<Time>(microseconds(250), length / 16) + overshoot + kLook * 2) << length.count();
  }
}

TEST(CudaWaitPlan, KnowsSeveralProgramsAndForgetsABadMoment) {
  const int programs[3] = {};
  const Time lengths[] = {microseconds(1000), microseconds(30000), microseconds(3000)};
  test::Rng rng(3);
  WaitPlan plan;
  for (int i = 0; i < 30; ++i) wait(plan, &programs[i % 3], lengths[i % 3], microseconds(55), rng);
  wait(plan, &programs[0], lengths[0], microseconds(20000), rng);  // the machine was elsewhere
  for (int i = 0; i < 300; ++i) wait(plan, &programs[i % 3], lengths[i % 3], microseconds(55), rng);
  for (int i = 0; i < 30; ++i) {
    const Waited w = wait(plan, &programs[i % 3], lengths[i % 3], microseconds(55), rng);
    EXPECT_LE(w.late, kLook);
    EXPECT_LT(w.busy, lengths[i % 3] / 4);
  }
}

}  // namespace
}  // namespace conclave::cuda
