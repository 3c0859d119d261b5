#include "backends/metal/shim/executor_gpu.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "backends/metal/shim/executor.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/memory.h"

namespace conclave::metal {
namespace {

constexpr std::int64_t kGuard = 256;  // bytes before and behind a buffer that nobody may change
constexpr int kGuardByte = 0xC5;

class ExecutorBuffer final : public Buffer {
 public:
  static std::shared_ptr<ExecutorBuffer> make(std::int64_t bytes) {
    auto whole = HostBuffer::make(bytes + 2 * kGuard);
    std::memset(whole->host(), kGuardByte, kGuard);
    std::memset(whole->host() + kGuard + bytes, kGuardByte, kGuard);
    return std::shared_ptr<ExecutorBuffer>(new ExecutorBuffer(std::move(whole), bytes));
  }

  WriteLog& log() const {
    if (!log_) log_ = std::make_unique<WriteLog>(host(), bytes());
    return *log_;
  }
  bool guards_stand() const {
    const auto untouched = [](const std::byte* from) {
      return std::all_of(from, from + kGuard, [](std::byte b) { return b == std::byte{kGuardByte}; });
    };
    return untouched(whole_->host()) && untouched(host() + bytes());
  }

 private:
  ExecutorBuffer(std::shared_ptr<HostBuffer> whole, std::int64_t bytes)
      : Buffer(whole->host() + kGuard, bytes), whole_(std::move(whole)) {}

  std::shared_ptr<HostBuffer> whole_;
  mutable std::unique_ptr<WriteLog> log_;
};

class ExecutorGpu final : public Gpu {
 public:
  explicit ExecutorGpu(const ExecutorOptions& options)
      : options_(options), executor_(options.threads > 0 ? options.threads : default_threads(), options.seed) {}

  std::string_view name() const override { return "the executor: kernels on this CPU, for tests"; }
  std::shared_ptr<Buffer> allocate(std::int64_t bytes) override { return ExecutorBuffer::make(bytes); }
  std::optional<std::int64_t> available_bytes() const override { return available_memory(); }
  bool reaches(const Buffer& buffer) const override {
    if (dynamic_cast<const ExecutorBuffer*>(&buffer) != nullptr) return true;
    // What Metal can map: whole pages.
    const auto address = reinterpret_cast<std::uintptr_t>(buffer.host());
    return dynamic_cast<const BorrowedBuffer*>(&buffer) != nullptr &&
           address % static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE)) == 0;
  }
  bool has_device_fence() const override { return options_.has_device_fence; }

  const void* pipeline(std::string_view kernel) override {
    const ShimKernel* found = Executor::find(kernel, options_.fault);
    if (found == nullptr) fail(ErrorCode::device_failed, "metal: there is no kernel '{}'", kernel);
    return found;
  }

  std::uint32_t max_threads(const void*) const override { return options_.max_threads; }

  // Kernels run at once: a barrier is what is remembered of the order they might have run in.
  void dispatch(const Encoded& kernel) override {
    ExecutorDispatch call{.kernel = static_cast<const ShimKernel*>(kernel.pipeline),
                          .args = kernel.args.data(),
                          .args_bytes = kernel.args.size(),
                          .groups = {kernel.groups.x, kernel.groups.y, kernel.groups.z},
                          .threads = kernel.threads,
                          .shared_bytes = kernel.shared_bytes};
    for (std::size_t i = 0; i < kMaxBuffers; ++i) call.bindings[i] = bound(kernel.bindings[i]);
    if (kernel.indirect) {
      std::memcpy(call.groups.data(), kernel.indirect->buffer->host() + kernel.indirect->begin, sizeof call.groups);
    }
    executor_.run(call);
    for (const Binding& binding : kernel.bindings) {
      const auto* ours = dynamic_cast<const ExecutorBuffer*>(binding.buffer);
      if (ours != nullptr && binding.writes && !ours->guards_stand()) {
        fail(ErrorCode::device_failed, "metal: a kernel wrote beside a buffer of {} bytes", ours->bytes());
      }
    }
  }
  void barrier() override { executor_.barrier(); }
  void commit() override { executor_.barrier(); }
  void wait() override {}

 private:
  static ExecutorBinding bound(const Binding& binding) {
    if (binding.buffer == nullptr) return {};
    std::byte* base = binding.buffer->host();
    ExecutorBinding made{.address = base + binding.offset, .begin = base + binding.begin, .end = base + binding.end};
    if (binding.writes) {
      const auto* ours = dynamic_cast<const ExecutorBuffer*>(binding.buffer);
      if (ours == nullptr) fail(ErrorCode::device_failed, "metal: a kernel would write to memory that is not its own");
      made.log = &ours->log();
    }
    return made;
  }

  ExecutorOptions options_;
  Executor executor_;
};

}  // namespace

std::unique_ptr<Gpu> make_executor_gpu(const ExecutorOptions& options) {
  if (const std::string absence = gpu_absence(); !absence.empty()) fail(ErrorCode::unsupported, "{}", absence);
  return std::make_unique<ExecutorGpu>(options);
}

std::unique_ptr<Gpu> make_gpu() {
  return make_executor_gpu({});
}

std::string gpu_absence() {
#if defined(__x86_64__)
  if (!detect_cpu_features().avx2) {
    return "no Metal device: the executor needs a CPU with AVX2, FMA and F16C";
  }
#endif
  return {};
}

}  // namespace conclave::metal
