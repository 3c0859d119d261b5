// silu_mul: one thread per run of a row, counted over all leading dimensions.
#pragma once

#include "backends/cuda/row_plan.h"

namespace conclave::cuda {

struct SiluMulArgs {
  View gate;  // out's shape, whatever the layout
  View up;
  View out;  // rank 1 to 4
  const std::int32_t* live = nullptr;
};

constexpr std::int64_t outer_rows(const View& v) {
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < v.rank; ++i) rows *= v.dims[i];
  return rows;
}

int launch_silu_mul(const SiluMulArgs& args, const Stream& stream);

}  // namespace conclave::cuda
