#include "ops/softmax.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/softmax_plan.h"

namespace conclave::cuda {
namespace {

class CudaSoftmax final : public CudaOp {
 public:
  explicit CudaSoftmax(const Softmax& op)
      : args_{.x = view_of(op.x), .out = view_of(op.out), .live = live_of(op.live), .scale = op.scale},
        what_("softmax " + shape_text(op.x.shape())) {}
  void enqueue(const CudaRun& run) const override {
    check(static_cast<cudaError_t>(launch_softmax(args_, run.stream)), what_);
  }

 private:
  SoftmaxArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const Softmax& op, const Target&) {
  return std::make_unique<CudaSoftmax>(op);
}

}  // namespace conclave::cuda
