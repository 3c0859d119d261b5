#include "ops/silu_mul.h"

#include "backends/cpu/row_work.h"
#include "ops/rows.h"

namespace conclave {
namespace {

class CpuSiluMul final : public CpuOp {
 public:
  CpuSiluMul(const SiluMul& op, const RowKernels& row)
      : op_(op), row_(row), from_(gate_up_views(op)), d_(row_width(op.out)) {
    gate_ = local_.add<float>(d_);
    up_ = local_.add<float>(d_);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  void run(const CpuRun& run) const override {
    float* gate_scratch = scratch_at<float>(run.local, gate_);
    float* up_scratch = scratch_at<float>(run.local, up_);
    std::int64_t n_rows = 0;
    if (d_ > 0) n_rows = op_.live.defined() ? live_rows(op_.live, op_.out.dim(0)) : row_count(op_.out);
    for_rows(run.region, n_rows, d_, [&](std::int64_t r) {
      const float* gate = read_row(row_, flat_row(from_.gate, r), {}, gate_scratch);
      const float* up = read_row(row_, flat_row(from_.up, r), {}, up_scratch);
      const Tensor to = flat_row(op_.out, r);
      float* out = row_target(to, {}, gate_scratch);
      row_.gate(Activation::silu, gate, up, out, d_);
      write_row(row_, to, {}, out);
    });
  }

 private:
  SiluMul op_;
  const RowKernels& row_;
  GateUpViews from_;
  std::int64_t d_;
  ScratchLayout local_;
  std::int64_t gate_ = 0;
  std::int64_t up_ = 0;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const SiluMul& op, const CpuKernels& kernels) {
  return std::make_unique<CpuSiluMul>(op, kernels.row);
}

}  // namespace conclave
