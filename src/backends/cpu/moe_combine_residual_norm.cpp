#include "backends/cpu/combine.h"
#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

class CpuMoeCombineResidualNorm final : public CpuOp {
 public:
  CpuMoeCombineResidualNorm(const MoeCombineResidualNorm& op, const RowKernels& row)
      : op_(op), row_(row), d_(row_width(op.residual)) {
    sum_ = local_.add<float>(d_);
    scratch_ = local_.add<float>(d_);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  void run(const CpuRun& run) const override {
    float* sum = scratch_at<float>(run.local, sum_);
    float* scratch = scratch_at<float>(run.local, scratch_);
    const std::int64_t work = d_ * (op_.from.weights.dim(1) + 1);
    for_rows(run.region, live_rows(op_.from.live, op_.residual.dim(0)), work, [&](std::int64_t t) {
      combine_token(op_.from, t, row_, sum, scratch);
      add_to_residual(op_.residual, t, row_, sum, scratch);
      norm_residual(op_.residual, op_.next, t, row_, scratch, sum);
    });
  }

 private:
  MoeCombineResidualNorm op_;
  const RowKernels& row_;
  std::int64_t d_;
  ScratchLayout local_;
  std::int64_t sum_ = 0;
  std::int64_t scratch_ = 0;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeCombineResidualNorm& op, const CpuKernels& kernels) {
  return std::make_unique<CpuMoeCombineResidualNorm>(op, kernels.row);
}

}  // namespace conclave
