#include "ops/rms_norm.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/rms_norm_plan.h"

namespace conclave::cuda {
namespace {

class CudaRmsNorm final : public CudaOp {
 public:
  explicit CudaRmsNorm(const RmsNorm& op)
      : args_{.x = view_of(op.x),
              .weight = view_of(op.weight),
              .out = view_of(op.out),
              .live = live_of(op.live),
              .eps = op.eps},
        what_("rms_norm " + shape_text(op.x.shape())) {}
  void enqueue(const CudaRun& run) const override {
    check(static_cast<cudaError_t>(launch_rms_norm(args_, run.stream)), what_);
  }

 private:
  RmsNormArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const RmsNorm& op, const Target&) {
  return std::make_unique<CudaRmsNorm>(op);
}

}  // namespace conclave::cuda
