// Metal on the CPU: runs the kernels of kernels/*.metal, compiled by clang through shim/metal_stdlib, and checks what they
// do. It is made for tests: it shows what a kernel computes and how it may be wrong, never how fast it is.
//
// The threads of a threadgroup are fibres that run until they meet at a barrier or a simdgroup function, in an order
// shuffled by a seed; threadgroups are spread over the threads of the system. These end a run with an Error that names the
// kernel, the threadgroup and the thread:
//
//   a barrier that some threads of a threadgroup do not reach, or reach elsewhere
//   a simdgroup function that some lanes do not reach, or reach elsewhere
//   a load or store outside of the tensors bound to the kernel, or a store to one that is bound to be read
//   a load of threadgroup memory that nobody has written
//   a race: two threads touch one word, one of them writes, and no barrier lies between them. In threadgroup memory all
//   are found; in device memory those where the write came first, also between threadgroups, and between dispatches
//   without a barrier
//
// It does not know: how Apple's GPUs round inside of matrix units and transcendental functions, that they flush subnormal
// numbers to zero, how weakly their memory is ordered beyond the rules above, and what their compiler makes of a source.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backends/metal/kernels/arguments.h"

struct ShimKernel;

namespace conclave {
class ThreadPool;
}

namespace conclave::metal {

// Who wrote the bytes of a buffer last. Made when it is first bound to be written.
class WriteLog;

struct ExecutorBinding {
  std::byte* address = nullptr;  // what the kernel gets
  std::byte* begin = nullptr;    // what it may touch
  std::byte* end = nullptr;
  WriteLog* log = nullptr;  // of the buffer; null: it may be read alone
};

struct ExecutorDispatch {
  const ShimKernel* kernel = nullptr;
  const std::byte* args = nullptr;
  std::size_t args_bytes = 0;
  std::array<ExecutorBinding, kMaxBuffers> bindings{};
  std::array<std::uint32_t, 3> groups{};
  std::uint32_t threads = 0;  // of a threadgroup
  std::uint32_t shared_bytes = 0;
};

class WriteLog {
 public:
  WriteLog(const std::byte* base, std::int64_t bytes);
  ~WriteLog();
  WriteLog(const WriteLog&) = delete;
  WriteLog& operator=(const WriteLog&) = delete;

  // Of the two bytes that hold this one.
  std::uint64_t& at(std::uintptr_t address) const { return stamps_[(address - base_) / 2]; }

 private:
  std::uintptr_t base_;
  std::uint64_t* stamps_;
  std::size_t bytes_;
};

class Executor {
 public:
  class Worker;

  static constexpr std::uint32_t kMaxThreads = 1024;  // of a threadgroup, as Metal has it
  static constexpr std::uint32_t kMaxSharedBytes = 32768;

  Executor(int threads, std::uint64_t seed);
  ~Executor();

  // The kernel of this name, made wrong in this way where there is one; null where there is none.
  static const ShimKernel* find(std::string_view name, std::string_view fault = {});
  static std::vector<std::string> kernel_names();

  // Runs it to its end. Throws Error where a kernel does what it must not.
  void run(const ExecutorDispatch& dispatch);
  // What was written before may be read by what comes after.
  void barrier();

 private:
  std::unique_ptr<ThreadPool> pool_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::uint64_t seed_;
  Worker* failed_ = nullptr;
  std::uint32_t dispatch_ = 0;
  std::uint32_t first_unordered_ = 1;  // dispatches from this one on have no barrier between them
};

}  // namespace conclave::metal
