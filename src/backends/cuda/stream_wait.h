// StreamWait: waits for the programs of a stream without keeping a core busy (wait_plan.h).
#pragma once

#include <cstdint>

#include "backends/cuda/view.h"
#include "backends/cuda/wait_plan.h"

struct CUevent_st;

namespace conclave::cuda {

class StreamWait {
 public:
  explicit StreamWait(CUstream_st* stream) : stream_(stream) {}

  // How many programs were put on the stream before something, and the last of them.
  struct Place {
    std::int64_t programs = 0;
    const void* last = nullptr;
  };

  // A program was put on the stream.
  void begin(const void* program);
  Place place() const { return begun_; }
  // How many may still run: nobody has waited for them.
  std::int64_t under_way() const { return begun_.programs - ended_; }
  // Somebody else has waited.
  void forget() { ended_ = begun_.programs; }
  // Until everything on the stream has run. Throws where it failed.
  void wait();
  // Until an event that was recorded at this place.
  void wait(CUevent_st* event, const Place& at);

 private:
  using Clock = std::chrono::steady_clock;
  template <class Query>
  void wait_until(const Place& at, const Query& query);

  CUstream_st* stream_;
  WaitPlan plan_;
  Place begun_;
  std::int64_t ended_ = 0;
  Clock::time_point since_;  // when the first that is under way could start
};

}  // namespace conclave::cuda
