#include "ops/softmax.h"

#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

class CpuSoftmax final : public CpuOp {
 public:
  CpuSoftmax(const Softmax& op, const RowKernels& row) : op_(op), row_(row), d_(row_width(op.x)) {
    local_.add<float>(d_);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  void run(const CpuRun& run) const override {
    float* scratch = scratch_at<float>(run.local, 0);
    for_rows(run.region, live_rows(op_.live, op_.x.dim(0)), d_, [&](std::int64_t r) {
      const float* x = read_row(row_, op_.x, {r}, scratch);
      float* out = row_target(op_.out, {r}, scratch);
      row_.softmax(x, op_.scale, out, d_);
      write_row(row_, op_.out, {r}, out);
    });
  }

 private:
  Softmax op_;
  const RowKernels& row_;
  std::int64_t d_;
  ScratchLayout local_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const Softmax& op, const CpuKernels& kernels) {
  return std::make_unique<CpuSoftmax>(op, kernels.row);
}

}  // namespace conclave
