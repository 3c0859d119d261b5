#include "backends/cuda/stream_wait.h"

#include <cuda_runtime_api.h>

#include <string_view>
#include <thread>

#include "backends/cuda/cuda_check.h"

namespace conclave::cuda {
namespace {
constexpr std::string_view kWaiting = "waiting for the GPU";
}

void StreamWait::begin(const void* program) {
  if (!under_way_) start_ = Clock::now();
  under_way_ = true;
  plan_.begin(program);
}

void StreamWait::wait() {
  if (!under_way_) {  // copies alone are over in a moment
    check(cudaStreamSynchronize(stream_), kWaiting);
    return;
  }
  under_way_ = false;
  for (bool first = true;; first = false) {
    const cudaError_t state = cudaStreamQuery(stream_);
    const WaitPlan::Time time = Clock::now() - start_;
    if (state != cudaErrorNotReady) {
      if (!first) plan_.end(time);  // else it ended before anybody looked: nobody knows when
      check(state, kWaiting);
      return;
    }
    static_cast<void>(cudaGetLastError());  // not ready is no error for the next call to find
    const WaitPlan::Time nap = plan_.next(time);
    if (nap == WaitPlan::Time{}) continue;
    std::this_thread::sleep_for(nap);
    plan_.slept(nap, Clock::now() - start_ - time);
  }
}

}  // namespace conclave::cuda
