// One thread of the system that runs threadgroups: its fibres, where they wait, and what they have touched.
#pragma once

#include <atomic>
#include <string>

#include "backends/metal/shim/executor.h"
#include "backends/metal/shim/fibre.h"
#include "backends/metal/shim/shim_abi.h"

namespace conclave::metal {

// What all workers of a dispatch share.
struct DispatchState {
  const ExecutorDispatch* call = nullptr;
  std::uint32_t dispatch = 0;
  std::uint32_t first_unordered = 0;
  // Of each threadgroup: whether a fence stood between its atomic stores and its last count (1), and one after that (2).
  std::vector<std::atomic<std::uint8_t>> fences;
  std::atomic<bool> failed = false;
};

class Executor::Worker {
 public:
  Worker();

  // Runs one threadgroup. False where it failed; error() says why.
  bool run_group(DispatchState& state, std::array<std::uint32_t, 3> group, std::uint32_t flat_group,
                 std::uint64_t seed);
  const std::string& error() const { return error_; }

  // Called on fibres.
  std::uint32_t collective(ShimCollective what, std::uint32_t bits, std::uint32_t argument, int line);
  void multiply(float* d, const float* a, const float* b, const float* c, int line);
  void barrier(int flags, int line);
  void simdgroup_barrier(int flags, int line);
  void fence();
  std::uint32_t atomic(int what, void* object, std::uint32_t operand, std::uint32_t expected, bool* swapped, int line);
  void touch(std::uintptr_t address, std::size_t bytes, bool writes) {
    if (stacks_.holds(address)) return;
    if (address - shared_begin_ < shared_bytes_) {
      touch_shared(address - shared_begin_, bytes, writes);
    } else {
      touch_device(address, bytes, writes);
    }
  }

  static Worker* current();

 private:
  enum class Waits : std::uint8_t { no, collective, barrier, ended };
  struct Lane {
    Fibre fibre;
    Waits waits = Waits::no;
    int line = 0;
    ShimCollective what = kShimMatrix;
    std::uint32_t bits = 0;
    std::uint32_t argument = 0;
    std::uint32_t result = 0;
    const float* operands[3] = {};  // of a matrix product
    float* product = nullptr;
  };
  // Who touched two bytes of threadgroup memory last, and when.
  struct Touch {
    std::uint32_t group = 0;  // serial number of the threadgroup; 0: nobody
    std::uint32_t epoch = 0;
    std::uint32_t simd_epoch = 0;
    std::uint16_t by = 0;
    bool several = false;        // readers: several of one simdgroup
    bool several_simds = false;  // of several
  };

  static void start(void* worker);
  void live();
  void wait(Waits how, int line);
  void wake(std::uint32_t first, std::uint32_t count);
  void finish_collective(std::uint32_t simd);
  void explain_standstill();
  [[noreturn]] void give_up(std::string text);
  std::string where(std::uint32_t index) const;
  bool ordered(const Touch& before) const;
  void touch_shared(std::uintptr_t at, std::size_t bytes, bool writes);
  void touch_device(std::uintptr_t address, std::size_t bytes, bool writes);
  const ExecutorBinding* binding_of(std::uintptr_t address, std::size_t bytes);

  FibreStacks stacks_;
  std::vector<Lane> lanes_;
  Fibre home_;
  std::vector<std::uint32_t> ready_;  // taken from the back
  std::uint32_t running_ = 0;
  std::uint32_t ended_ = 0;
  std::uint32_t at_barrier_ = 0;
  int barrier_flags_ = 0;
  std::array<std::uint32_t, 32> arrived_{};  // of each simdgroup
  std::array<std::uint32_t, 32> simd_epoch_{};
  std::uint32_t epoch_ = 0;         // of threadgroup memory
  std::uint32_t device_epoch_ = 0;  // of device memory
  std::uint64_t random_ = 1;

  DispatchState* state_ = nullptr;
  ShimPlace place_{};
  std::uint32_t flat_group_ = 0;
  std::uint32_t group_serial_ = 0;
  std::vector<std::byte> shared_;
  std::uintptr_t shared_begin_ = 0;
  std::size_t shared_bytes_ = 0;
  std::vector<Touch> written_;  // per two bytes
  std::vector<Touch> read_;
  bool unfenced_ = false;  // an atomic store since the last fence
  int last_binding_ = 0;
  std::string error_;
};

}  // namespace conclave::metal
