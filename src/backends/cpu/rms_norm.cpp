#include "ops/rms_norm.h"

#include "backends/cpu/row_work.h"
#include "ops/rows.h"

namespace conclave {
namespace {

class CpuRmsNorm final : public CpuOp {
 public:
  CpuRmsNorm(const RmsNorm& op, const RowKernels& row) : op_(op), row_(row), d_(row_width(op.x)) {
    x_ = local_.add<float>(d_);
    weight_ = local_.add<float>(d_);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  bool alone() const override { return d_ == 0 || rows_alone(op_.x.dim(0) * heads(), d_); }
  void run(const CpuRun& run) const override {
    float* x_scratch = scratch_at<float>(run.local, x_);
    float* weight_scratch = scratch_at<float>(run.local, weight_);
    const std::int64_t n_rows = d_ > 0 ? live_rows(op_.live, op_.x.dim(0)) * heads() : 0;
    for_rows(run.region, n_rows, d_, [&](std::int64_t r) {
      const float* x = read_row(row_, flat_row(op_.x, r), {}, x_scratch);
      const float* weight = read_row(row_, op_.weight, {}, weight_scratch);
      const Tensor to = flat_row(op_.out, r);
      float* out = row_target(to, {}, x_scratch);
      row_.rms_norm(x, weight, op_.eps, out, d_);
      write_row(row_, to, {}, out);
    });
  }

 private:
  std::int64_t heads() const { return op_.x.rank == 3 ? op_.x.dim(1) : 1; }

  RmsNorm op_;
  const RowKernels& row_;
  std::int64_t d_;
  ScratchLayout local_;
  std::int64_t x_ = 0;
  std::int64_t weight_ = 0;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const RmsNorm& op, const CpuKernels& kernels) {
  return std::make_unique<CpuRmsNorm>(op, kernels.row);
}

}  // namespace conclave
