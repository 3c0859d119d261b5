// StreamWait: waits for the programs of a stream without keeping a core busy (wait_plan.h).
#pragma once

#include "backends/cuda/view.h"
#include "backends/cuda/wait_plan.h"

namespace conclave::cuda {

class StreamWait {
 public:
  explicit StreamWait(CUstream_st* stream) : stream_(stream) {}

  // A program was put on the stream.
  void begin(const void* program);
  // Whether there is one that has not been waited for.
  bool under_way() const { return under_way_; }
  // Somebody else has waited.
  void forget() { under_way_ = false; }
  // Until everything on the stream has run. Throws where it failed.
  void wait();

 private:
  using Clock = std::chrono::steady_clock;

  CUstream_st* stream_;
  WaitPlan plan_;
  Clock::time_point start_;  // of the first that is under way
  bool under_way_ = false;
};

}  // namespace conclave::cuda
