#include "ops/add.h"

#include "backends/cuda/add_plan.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"

namespace conclave::cuda {
namespace {

class CudaAdd final : public CudaOp {
 public:
  explicit CudaAdd(const Add& op)
      : args_{.a = view_of(op.a), .b = view_of(op.b), .out = view_of(op.out), .live = live_of(op.live)},
        what_("add " + shape_text(op.a.shape())) {}
  void enqueue(const CudaRun& run) const override {
    check(static_cast<cudaError_t>(launch_add(args_, run.stream)), what_);
  }

 private:
  AddArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const Add& op, const Target&) {
  return std::make_unique<CudaAdd>(op);
}

}  // namespace conclave::cuda
