// Weights of 16 bits as Hopper's copy engine takes them: boxes of columns, 64 of k each, which come to lie in shared
// memory as wgmma.cuh wants rows.
#pragma once

#include <cuda.h>

#include "backends/cuda/half_prefill_plan.h"

namespace conclave::cuda {

struct HalfBoxes {
  CUtensorMap map[kPrefillSides];  // of each side; of gate and up
  bool given = false;
};
// Not given where the driver has no such thing.
HalfBoxes half_boxes(const PrefillArgs& args);

}  // namespace conclave::cuda
