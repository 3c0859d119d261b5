// Where barriers stand: before a kernel that touches what one since the last barrier has written, or writes what one has
// read. Kernels between two barriers may overlap.
#pragma once

#include <span>
#include <vector>

#include "backends/metal/gpu.h"

namespace conclave::metal {

class Hazards {
 public:
  // Whether a kernel that touches these ranges needs a barrier before it; it is then the first one after that.
  bool add(std::span<const Binding> touched) {
    bool clash = false;
    for (const Binding& now : touched) {
      for (const Binding& before : since_) clash = clash || (overlap(now, before) && (now.writes || before.writes));
    }
    if (clash) since_.clear();
    for (const Binding& now : touched) {
      if (now.buffer != nullptr && now.begin < now.end) since_.push_back(now);
    }
    return clash;
  }
  void clear() { since_.clear(); }

 private:
  static bool overlap(const Binding& a, const Binding& b) {
    return a.buffer != nullptr && a.buffer == b.buffer && a.begin < b.end && b.begin < a.end;
  }

  std::vector<Binding> since_;
};

}  // namespace conclave::metal
