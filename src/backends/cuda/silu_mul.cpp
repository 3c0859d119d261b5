#include "ops/silu_mul.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/silu_mul_plan.h"

namespace conclave::cuda {
std::unique_ptr<CudaOp> make_cuda_op(const SiluMul& op, const Target&) {
  const GateUpViews halves = gate_up_views(op);
  const SiluMulArgs args{
      .gate = view_of(halves.gate), .up = view_of(halves.up), .out = view_of(op.out), .live = ints_of(op.live)};
  return launch_op(launch_silu_mul, args, "silu_mul " + shape_text(op.out.shape()));
}

}  // namespace conclave::cuda
