// Weights as Hopper's copy engine takes them for prefill_rows: one or two superblocks of the columns of a warpgroup at a
// time.
#pragma once

#include <cuda.h>

#include "backends/cuda/weight_boxes_plan.h"

namespace conclave::cuda {

// Maps of rank 4: words of four bytes of a column, columns, runs of columns, experts. Outputs that become a bank have
// four neighbours of each 32 columns, of eight such runs, in a warpgroup; others have neighbours alone, in one run.
struct WeightBoxes {
  CUtensorMap map[kPrefillSides];  // of each product, or of gate and up
  bool given = false;
};
WeightBoxes weight_boxes(const PrefillArgs& args, int span);

}  // namespace conclave::cuda
