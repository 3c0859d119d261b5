#include "ops/rms_norm.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/rms_norm_plan.h"

namespace conclave::cuda {
std::unique_ptr<CudaOp> make_cuda_op(const RmsNorm& op, const Target&) {
  const RmsNormArgs args{.x = view_of(op.x),
                         .weight = view_of(op.weight),
                         .out = view_of(op.out),
                         .live = ints_of(op.live),
                         .eps = op.eps};
  return launch_op(launch_rms_norm, args, "rms_norm " + shape_text(op.x.shape()));
}

}  // namespace conclave::cuda
