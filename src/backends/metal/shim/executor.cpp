#include "backends/metal/shim/executor.h"

#include <algorithm>

#include "backends/metal/shim/worker.h"
#include "base/fail.h"
#include "base/thread_pool.h"

// The section that kernels are gathered in; the linker names its ends. They come along because the number is asked for.
// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
extern "C" const int conclave_metal_kernels;
extern "C" const ShimKernel __start_conclave_metal[];
extern "C" const ShimKernel __stop_conclave_metal[];
// NOLINTEND(bugprone-reserved-identifier)

namespace conclave::metal {

Executor::Executor(int threads, std::uint64_t seed) : pool_(std::make_unique<ThreadPool>(threads)), seed_(seed) {
  for (int i = 0; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
}
Executor::~Executor() = default;

const ShimKernel* Executor::find(std::string_view name, std::string_view fault) {
  const ShimKernel* found = nullptr;
  if (conclave_metal_kernels == 0) return found;
  for (const ShimKernel* kernel = __start_conclave_metal; kernel != __stop_conclave_metal; ++kernel) {
    if (name != kernel->name) continue;
    if (fault == kernel->fault) return kernel;
    if (*kernel->fault == '\0') found = kernel;
  }
  return found;
}

std::vector<std::string> Executor::kernel_names() {
  std::vector<std::string> names;
  for (const ShimKernel* kernel = __start_conclave_metal; kernel != __stop_conclave_metal; ++kernel) {
    if (*kernel->fault == '\0') names.emplace_back(kernel->name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void Executor::barrier() {
  first_unordered_ = dispatch_ + 1;
}

void Executor::run(const ExecutorDispatch& call) {
  ++dispatch_;
  const std::int64_t x = call.groups[0];
  const std::int64_t y = call.groups[1];
  const std::int64_t groups = x * y * call.groups[2];
  if (groups == 0) return;
  if (call.threads == 0 || call.threads > kMaxThreads || call.threads % kSimdWidth != 0) {
    fail(ErrorCode::device_failed, "{}: {} threads in a threadgroup, must be a multiple of {} up to {}",
         call.kernel->name, call.threads, static_cast<int>(kSimdWidth), kMaxThreads);
  }
  if (call.shared_bytes > kMaxSharedBytes) {
    fail(ErrorCode::device_failed, "{}: {} bytes of threadgroup memory, there are {}", call.kernel->name,
         call.shared_bytes, kMaxSharedBytes);
  }
  DispatchState state{.call = &call, .dispatch = dispatch_, .first_unordered = first_unordered_};
  state.fences =
      std::vector<std::atomic<std::uint8_t>>(static_cast<std::size_t>(std::min<std::int64_t>(groups, 1 << 18)));
  const auto run_one = [&](Worker& worker, std::int64_t g) {
    if (state.failed.load(std::memory_order_relaxed)) return;
    const std::array<std::uint32_t, 3> group = {static_cast<std::uint32_t>(g % x),
                                                static_cast<std::uint32_t>(g / x % y),
                                                static_cast<std::uint32_t>(g / x / y)};
    if (!worker.run_group(state, group, static_cast<std::uint32_t>(g), seed_ + dispatch_)) {
      // The first error stands; others may be its consequence.
      if (!state.failed.exchange(true)) failed_ = &worker;
    }
  };
  failed_ = nullptr;
  if (groups == 1 || pool_->size() == 1) {
    for (std::int64_t g = 0; g < groups; ++g) run_one(*workers_[0], g);
  } else {
    pool_->run([&](int rank) {
      Region region(*pool_, rank);
      region.for_each(groups, [&](std::int64_t g) { run_one(*workers_[static_cast<std::size_t>(rank)], g); });
    });
  }
  if (failed_ != nullptr) fail(ErrorCode::device_failed, "metal: {}", failed_->error());
}

}  // namespace conclave::metal
