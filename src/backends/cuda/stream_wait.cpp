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
  if (under_way() == 0) since_ = Clock::now();
  ++begun_.programs;
  begun_.last = program;
}

void StreamWait::wait() {
  if (under_way() == 0) {  // copies alone are over in a moment
    check(cudaStreamSynchronize(stream_), kWaiting);
    return;
  }
  wait_until(begun_, [&] { return cudaStreamQuery(stream_); });
}

void StreamWait::wait(CUevent_st* event, const Place& at) {
  if (at.programs <= ended_) {
    check(cudaEventSynchronize(event), kWaiting);
    return;
  }
  wait_until(at, [&] { return cudaEventQuery(event); });
}

template <class Query>
void StreamWait::wait_until(const Place& at, const Query& query) {
  plan_.begin(at.last);
  for (bool first = true;; first = false) {
    const cudaError_t state = query();
    const Clock::time_point now = Clock::now();
    if (state != cudaErrorNotReady) {
      if (!first) plan_.end(now - since_);  // else it ended before anybody looked: nobody knows when
      ended_ = at.programs;
      since_ = now;
      check(state, kWaiting);
      return;
    }
    static_cast<void>(cudaGetLastError());  // not ready is no error for the next call to find
    const WaitPlan::Time nap = plan_.next(now - since_);
    if (nap == WaitPlan::Time{}) continue;
    std::this_thread::sleep_for(nap);
    plan_.slept(nap, Clock::now() - now);
  }
}

}  // namespace conclave::cuda
