#include "ops/softmax.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/softmax_plan.h"

namespace conclave::cuda {
std::unique_ptr<CudaOp> make_cuda_op(const Softmax& op, const Target&) {
  const SoftmaxArgs args{.x = view_of(op.x), .out = view_of(op.out), .live = ints_of(op.live), .scale = op.scale};
  return launch_op(launch_softmax, args, "softmax " + shape_text(op.x.shape()));
}

}  // namespace conclave::cuda
