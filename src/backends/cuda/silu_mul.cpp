#include "ops/silu_mul.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/silu_mul_plan.h"

namespace conclave::cuda {
namespace {

class CudaSiluMul final : public CudaOp {
 public:
  explicit CudaSiluMul(const SiluMul& op)
      : args_{.gate = view_of(gate_up_views(op).gate),
              .up = view_of(gate_up_views(op).up),
              .out = view_of(op.out),
              .live = live_of(op.live)},
        what_("silu_mul " + shape_text(op.out.shape())) {}
  void enqueue(const CudaRun& run) const override {
    check(static_cast<cudaError_t>(launch_silu_mul(args_, run.stream)), what_);
  }

 private:
  SiluMulArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const SiluMul& op, const Target&) {
  return std::make_unique<CudaSiluMul>(op);
}

}  // namespace conclave::cuda
