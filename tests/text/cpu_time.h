// How long something takes: CPU time of this process, so that a busy machine does not count.
#pragma once

#include <ctime>

namespace conclave::testing {

#ifdef NDEBUG
inline constexpr double kSlower = 1;
#else
inline constexpr double kSlower = 20;  // without optimisation, or under a sanitizer
#endif

class CpuTimer {
 public:
  double seconds() const { return static_cast<double>(std::clock() - start_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t start_ = std::clock();
};

}  // namespace conclave::testing
