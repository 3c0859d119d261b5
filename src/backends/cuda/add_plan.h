// add: one thread per run of a row.
#pragma once

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

struct AddArgs {
  View a;  // [n, d]
  View b;  // [n, d], or [d] for every row
  View out;
  const std::int32_t* live = nullptr;
};

int launch_add(const AddArgs& args, const Stream& stream);

}  // namespace conclave::cuda
