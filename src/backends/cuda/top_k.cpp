#include "ops/top_k.h"

#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/top_k_plan.h"

namespace conclave::cuda {
namespace {

static_assert(TopK::kMostPlaces == kTopKMost);

class CudaTopK final : public CudaOp {
 public:
  explicit CudaTopK(const TopK& op)
      : args_{.x = view_of(op.x), .ids = view_of(op.ids), .values = view_of(op.values), .live = ints_of(op.live)},
        what_("top_k " + shape_text(op.ids.shape()) + " of " + shape_text(op.x.shape())) {}
  std::int64_t scratch_bytes() const override {
    return top_k_scratch_bytes(args_.x.dims[0], args_.x.dims[1], args_.ids.dims[1]);
  }
  void enqueue(const CudaRun& run) const override { check(launch_top_k(args_, run.scratch, run.stream), what_); }

 private:
  TopKArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const TopK& op, const Target&) {
  return std::make_unique<CudaTopK>(op);
}

}  // namespace conclave::cuda
