#include "ops/add.h"

#include "backends/cuda/add_plan.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/launch_op.h"

namespace conclave::cuda {
std::unique_ptr<CudaOp> make_cuda_op(const Add& op, const Target&) {
  const AddArgs args{.a = view_of(op.a), .b = view_of(op.b), .out = view_of(op.out), .live = ints_of(op.live)};
  return launch_op(launch_add, args, "add " + shape_text(op.a.shape()));
}

}  // namespace conclave::cuda
