// The GPU that is none: kernels run on this machine's CPU and are checked as they run (shim/executor.h). For tests.
#pragma once

#include "backends/metal/gpu.h"

namespace conclave::metal {

struct ExecutorOptions {
  int threads = 0;         // 0: the CPUs that this process may use
  std::uint64_t seed = 1;  // of the order in which threads run
  std::string fault;       // kernels made wrong in this way, where there are any (tests/backends/metal/faults)
  bool has_device_fence = true;
  std::uint32_t max_threads = 1024;  // of a threadgroup
};

std::unique_ptr<Gpu> make_executor_gpu(const ExecutorOptions& options);

}  // namespace conclave::metal
