#include "ops/argmax.h"

#include "backends/cuda/argmax_plan.h"
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"

namespace conclave::cuda {
namespace {

class CudaArgmax final : public CudaOp {
 public:
  explicit CudaArgmax(const Argmax& op)
      : args_{.x = view_of(op.x), .ids = view_of(op.ids), .live = ints_of(op.live)},
        what_("argmax " + shape_text(op.x.shape())) {}
  std::int64_t scratch_bytes() const override { return argmax_scratch_bytes(args_.x.dims[0], args_.x.dims[1]); }
  void enqueue(const CudaRun& run) const override { check(launch_argmax(args_, run.scratch, run.stream), what_); }

 private:
  ArgmaxArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const Argmax& op, const Target&) {
  return std::make_unique<CudaArgmax>(op);
}

}  // namespace conclave::cuda
