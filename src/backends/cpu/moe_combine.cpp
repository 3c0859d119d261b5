#include "backends/cpu/combine.h"
#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

class CpuMoeCombine final : public CpuOp {
 public:
  CpuMoeCombine(const MoeCombine& op, const RowKernels& row) : op_(op), row_(row), d_(row_width(op.out)) {
    sum_ = local_.add<float>(d_);
    scratch_ = local_.add<float>(d_);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  void run(const CpuRun& run) const override {
    float* sum = scratch_at<float>(run.local, sum_);
    float* scratch = scratch_at<float>(run.local, scratch_);
    const std::int64_t work = d_ * (op_.from.weights.dim(1) + 1);
    for_rows(run.region, live_rows(op_.from.live, op_.out.dim(0)), work, [&](std::int64_t t) {
      float* out = row_target(op_.out, {t}, sum);
      combine_token(op_.from, t, row_, out, scratch);
      write_row(row_, op_.out, {t}, out);
    });
  }

 private:
  MoeCombine op_;
  const RowKernels& row_;
  std::int64_t d_;
  ScratchLayout local_;
  std::int64_t sum_ = 0;
  std::int64_t scratch_ = 0;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeCombine& op, const CpuKernels& kernels) {
  return std::make_unique<CpuMoeCombine>(op, kernels.row);
}

}  // namespace conclave
