#include "backends/metal/shim/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace conclave::metal {
namespace {

// The worker whose fibres run on this thread of the system; callbacks from kernels have no other way to it.
thread_local Executor::Worker* running_worker = nullptr;

float as_float(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

}  // namespace

Executor::Worker* Executor::Worker::current() {
  return running_worker;
}

Executor::Worker::Worker()
    : stacks_(kMaxThreads),
      lanes_(kMaxThreads),
      shared_(kMaxSharedBytes),
      written_(kMaxSharedBytes / 2),
      read_(kMaxSharedBytes / 2) {
  ready_.reserve(kMaxThreads);
}

bool Executor::Worker::run_group(DispatchState& state, std::array<std::uint32_t, 3> group, std::uint32_t flat_group,
                                 std::uint64_t seed) {
  state_ = &state;
  const ExecutorDispatch& call = *state.call;
  flat_group_ = flat_group;
  ++group_serial_;
  random_ = (seed + flat_group) * 0x9E3779B97F4A7C15U | 1U;
  place_ = {.group = {group[0], group[1], group[2]},
            .groups = {call.groups[0], call.groups[1], call.groups[2]},
            .count = call.threads};
  shared_begin_ = reinterpret_cast<std::uintptr_t>(shared_.data());
  shared_bytes_ = call.shared_bytes;
  std::memset(shared_.data(), 0xAD, call.shared_bytes);
  unfenced_ = false;
  epoch_ = device_epoch_ = at_barrier_ = ended_ = 0;
  arrived_.fill(0);
  simd_epoch_.fill(0);
  error_.clear();
  ready_.clear();
  for (std::uint32_t i = 0; i < call.threads; ++i) {
    lanes_[i].waits = Waits::no;
    lanes_[i].fibre.prepare(stacks_.at(i), FibreStacks::kBytes, &Worker::start, this);
  }
  const std::uint32_t simds = std::max<std::uint32_t>(call.threads / kSimdWidth, 1);
  const auto first = static_cast<std::uint32_t>(random_ >> 40) % simds;
  for (std::uint32_t s = 0; s < simds; ++s) wake((first + s) % simds * kSimdWidth, kSimdWidth);
  running_worker = this;
  running_ = ready_.back();
  ready_.pop_back();
  lanes_[running_].fibre.resume(home_);
  running_worker = nullptr;
  if (error_.empty() && ended_ < call.threads) explain_standstill();
  return error_.empty();
}

void Executor::Worker::start(void* worker) {
  static_cast<Worker*>(worker)->live();
}

// The life of one thread of the kernel.
void Executor::Worker::live() {
  const ExecutorDispatch& call = *state_->call;
  unsigned char* buffers[kMaxBuffers];
  for (int i = 0; i < kMaxBuffers; ++i) {
    buffers[i] = reinterpret_cast<unsigned char*>(call.bindings[static_cast<std::size_t>(i)].address);
  }
  ShimPlace place = place_;
  place.index = running_;
  place.lane = running_ % kSimdWidth;
  place.simd = running_ / kSimdWidth;
  call.kernel->call(call.args, buffers, reinterpret_cast<unsigned char*>(shared_.data()), &place);
  ++ended_;
  wait(Waits::ended, 0);
}

// Makes `count` threads from `first` on ready, in a shuffled order, but for the one that runs.
void Executor::Worker::wake(std::uint32_t first, std::uint32_t count) {
  random_ ^= random_ << 13;
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  // An odd factor visits each of a power of two once; others are cut into simdgroups.
  const auto factor = static_cast<std::uint32_t>(random_ >> 32) | 1U;
  const auto start = static_cast<std::uint32_t>(random_ >> 8);
  for (std::uint32_t base = 0; base < count; base += 32) {
    for (std::uint32_t i = 0; i < 32; ++i) {
      const std::uint32_t index = first + base + (start + i * factor) % 32;
      lanes_[index].waits = Waits::no;
      ready_.push_back(index);
    }
  }
}

// Leaves the thread that runs until it is woken.
void Executor::Worker::wait(Waits how, int line) {
  Lane& self = lanes_[running_];
  self.waits = how;
  self.line = line;
  if (ready_.empty()) {
    home_.resume(self.fibre);
    return;
  }
  running_ = ready_.back();
  ready_.pop_back();
  lanes_[running_].fibre.resume(self.fibre);
}

std::uint32_t Executor::Worker::collective(ShimCollective what, std::uint32_t bits, std::uint32_t argument, int line) {
  const std::uint32_t self = running_;
  const std::uint32_t simd = self / kSimdWidth;
  Lane& lane = lanes_[self];
  lane.what = what;
  lane.bits = bits;
  lane.argument = argument;
  lane.line = line;
  lane.waits = Waits::collective;
  if (++arrived_[simd] == kSimdWidth) {
    finish_collective(simd);
    arrived_[simd] = 0;
    wake(simd * kSimdWidth, kSimdWidth);
    ready_.erase(std::find(ready_.end() - kSimdWidth, ready_.end(), self));
  } else {
    wait(Waits::collective, line);
  }
  return lanes_[self].result;
}

void Executor::Worker::multiply(float* d, const float* a, const float* b, const float* c, int line) {
  Lane& lane = lanes_[running_];
  lane.product = d;
  lane.operands[0] = a;
  lane.operands[1] = b;
  lane.operands[2] = c;
  collective(kShimMatrix, 1, 0, line);
}

// All lanes have come: the last of them does the work of all.
void Executor::Worker::finish_collective(std::uint32_t simd) {
  Lane* lanes = &lanes_[simd * kSimdWidth];
  for (std::uint32_t i = 1; i < kSimdWidth; ++i) {
    if (lanes[i].line == lanes[0].line && lanes[i].what == lanes[0].what) continue;
    give_up(fmt::format("a simdgroup function that not all lanes reach: lane 0 is at line {}, lane {} at line {}",
                        lanes[0].line, i, lanes[i].line));
  }
  std::array<std::uint32_t, kSimdWidth> in{};
  for (std::uint32_t i = 0; i < kSimdWidth; ++i) in[i] = lanes[i].bits;
  const auto fold = [&](auto&& join) {
    // In halves, as a butterfly of shuffles would.
    for (std::uint32_t half = kSimdWidth / 2; half > 0; half /= 2) {
      for (std::uint32_t i = 0; i < half; ++i) in[i] = join(in[i], in[i + half]);
    }
    for (std::uint32_t i = 0; i < kSimdWidth; ++i) lanes[i].result = in[0];
  };
  const auto fold_floats = [&](auto&& join) {
    fold(
        [&](std::uint32_t a, std::uint32_t b) { return std::bit_cast<std::uint32_t>(join(as_float(a), as_float(b))); });
  };
  const auto take = [&](auto&& source) {
    for (std::uint32_t i = 0; i < kSimdWidth; ++i) {
      const std::int64_t from = source(static_cast<std::int64_t>(i), static_cast<std::int64_t>(lanes[i].argument));
      // What Metal leaves undefined is a value that shows.
      lanes[i].result = from >= 0 && from < kSimdWidth ? in[static_cast<std::size_t>(from)] : 0xADADADADU;
    }
  };
  switch (lanes[0].what) {
    case kShimSumFloat:
      return fold_floats([](float a, float b) { return a + b; });
    case kShimMaxFloat:
      return fold_floats([](float a, float b) { return std::fmax(a, b); });
    case kShimMinFloat:
      return fold_floats([](float a, float b) { return std::fmin(a, b); });
    case kShimSumInt:
      return fold([](std::uint32_t a, std::uint32_t b) { return a + b; });
    case kShimMaxUint:
      return fold([](std::uint32_t a, std::uint32_t b) { return std::max(a, b); });
    case kShimMinUint:
      return fold([](std::uint32_t a, std::uint32_t b) { return std::min(a, b); });
    case kShimOr:
      return fold([](std::uint32_t a, std::uint32_t b) { return a | b; });
    case kShimAnd:
      return fold([](std::uint32_t a, std::uint32_t b) { return a & b; });
    case kShimPrefixInt: {
      std::uint32_t sum = 0;
      for (std::uint32_t i = 0; i < kSimdWidth; ++i) {
        lanes[i].result = sum;
        sum += in[i];
      }
      return;
    }
    case kShimShuffle:
      return take([](std::int64_t, std::int64_t argument) { return argument; });
    case kShimShuffleXor:
      return take([](std::int64_t lane, std::int64_t argument) { return lane ^ argument; });
    case kShimShuffleDown:
      return take([](std::int64_t lane, std::int64_t argument) { return lane + argument; });
    case kShimShuffleUp:
      return take([](std::int64_t lane, std::int64_t argument) { return lane - argument; });
    case kShimBarrier:
      if ((lanes[0].argument & 2) != 0) ++simd_epoch_[simd];
      return;
    case kShimMatrix:
      break;
  }
  for (std::uint32_t i = 0; i < kSimdWidth; ++i) lanes[i].result = i;
  if (in[0] == 0) return;  // a load or a store: each lane does its own part
  float a[8][8];
  float b[8][8];
  float sum[8][8];
  for (std::uint32_t i = 0; i < kSimdWidth; ++i) {
    for (std::uint32_t j = 0; j < 2; ++j) {
      a[i / 4][2 * (i % 4) + j] = lanes[i].operands[0][j];
      b[i / 4][2 * (i % 4) + j] = lanes[i].operands[1][j];
      sum[i / 4][2 * (i % 4) + j] = lanes[i].operands[2][j];
    }
  }
  for (int m = 0; m < 8; ++m) {
    for (int k = 0; k < 8; ++k) {
      for (int n = 0; n < 8; ++n) sum[m][n] += a[m][k] * b[k][n];
    }
  }
  for (std::uint32_t i = 0; i < kSimdWidth; ++i) {
    for (std::uint32_t j = 0; j < 2; ++j) lanes[i].product[j] = sum[i / 4][2 * (i % 4) + j];
  }
}

void Executor::Worker::barrier(int flags, int line) {
  const std::uint32_t self = running_;
  const std::uint32_t threads = state_->call->threads;
  Lane& lane = lanes_[self];
  lane.line = line;
  if (at_barrier_ == 0) barrier_flags_ = flags;
  barrier_flags_ &= flags;
  lane.waits = Waits::barrier;
  if (++at_barrier_ < threads) {
    wait(Waits::barrier, line);
    return;
  }
  for (std::uint32_t i = 0; i < threads; ++i) {
    if (lanes_[i].line == line) continue;
    give_up(fmt::format("a barrier that not all threads reach: thread {} is at line {}, thread {} at line {}", i,
                        lanes_[i].line, self, line));
  }
  at_barrier_ = 0;
  if ((barrier_flags_ & 2) != 0) ++epoch_;
  if ((barrier_flags_ & 1) != 0) ++device_epoch_;
  wake(0, threads);
  ready_.erase(std::find(ready_.begin(), ready_.end(), self));
}

void Executor::Worker::simdgroup_barrier(int flags, int line) {
  collective(kShimBarrier, 0, static_cast<std::uint32_t>(flags), line);
}

void Executor::Worker::fence() {
  unfenced_ = false;
  state_->fences[flat_group_ % state_->fences.size()].fetch_or(2, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Nobody can go on, and not all have ended.
void Executor::Worker::explain_standstill() {
  const std::uint32_t threads = state_->call->threads;
  for (std::uint32_t i = 0; i < threads; ++i) {
    if (lanes_[i].waits != Waits::collective) continue;
    for (std::uint32_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) {
      if (lanes_[j].waits == Waits::collective) continue;
      const std::string elsewhere = lanes_[j].waits == Waits::ended
                                        ? "has ended"
                                        : fmt::format("waits at the barrier of line {}", lanes_[j].line);
      error_ = fmt::format("{}: a simdgroup function at line {} with missing lanes: thread {} {}", where(i),
                           lanes_[i].line, j, elsewhere);
      return;
    }
  }
  for (std::uint32_t i = 0; i < threads; ++i) {
    if (lanes_[i].waits != Waits::barrier) continue;
    for (std::uint32_t j = 0; j < threads; ++j) {
      if (lanes_[j].waits != Waits::ended) continue;
      error_ = fmt::format("{}: a barrier at line {} that not all threads reach: thread {} has ended", where(i),
                           lanes_[i].line, j);
      return;
    }
  }
}

std::string Executor::Worker::where(std::uint32_t index) const {
  const std::string fault = state_->call->kernel->fault;
  return fmt::format("{}{}{}, threadgroup ({}, {}, {}), thread {}", state_->call->kernel->name,
                     fault.empty() ? "" : " ", fault, place_.group[0], place_.group[1], place_.group[2], index);
}

// Ends the threadgroup: its fibres are left as they are.
void Executor::Worker::give_up(std::string text) {
  error_ = fmt::format("{}: {}", where(running_), text);
  home_.resume(lanes_[running_].fibre);
  std::abort();  // nobody comes back
}

}  // namespace conclave::metal
