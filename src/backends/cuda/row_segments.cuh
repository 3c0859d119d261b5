// The two launches of an op whose rows are cut into segments.
#pragma once

#include "backends/cuda/launch.cuh"
#include "backends/cuda/row_segments_plan.h"

namespace conclave::cuda {

// `vectors` and `elements` go over segments, `rows` over what they leave in `scratch`; each takes the arguments, the
// number of segments of a row, and where the segments' results are: null where the first launch gives the rows' own.
template <class Args, class Part>
cudaError_t launch_segments(void (*vectors)(Args, std::int64_t, Part*), void (*elements)(Args, std::int64_t, Part*),
                            void (*rows)(Args, std::int64_t, const Part*), const LaunchPlan& rows_plan,
                            const Args& args, std::byte* scratch, const Stream& stream) {
  const std::int64_t segments = row_segments(args.x.dims[1]);
  auto* of_segment = segments > 1 ? reinterpret_cast<Part*>(scratch) : nullptr;
  const LaunchPlan plan = row_segments_plan(args.x.dims[0], args.x.dims[1]);
  const cudaError_t error =
      launch(takes_vectors(args.x) ? vectors : elements, plan, stream, args, segments, of_segment);
  if (error != cudaSuccess) return error;
  return launch(rows, rows_plan, stream, args, segments, static_cast<const Part*>(of_segment));
}

}  // namespace conclave::cuda
