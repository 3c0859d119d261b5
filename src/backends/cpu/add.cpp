#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

class CpuAdd final : public CpuOp {
 public:
  CpuAdd(const Add& op, const RowKernels& row) : op_(op), row_(row), d_(row_width(op.out)) {
    a_ = local_.add<float>(d_);
    b_ = local_.add<float>(d_);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  bool alone() const override { return rows_alone(op_.a.dim(0), d_); }
  void run(const CpuRun& run) const override {
    float* a_scratch = scratch_at<float>(run.local, a_);
    float* b_scratch = scratch_at<float>(run.local, b_);
    for_rows(run.region, live_rows(op_.live, op_.a.dim(0)), d_, [&](std::int64_t r) {
      const float* a = read_row(row_, op_.a, {r}, a_scratch);
      const float* b = op_.b.rank == 1 ? read_row(row_, op_.b, {}, b_scratch) : read_row(row_, op_.b, {r}, b_scratch);
      float* out = row_target(op_.out, {r}, a_scratch);
      row_.add(a, b, out, d_);
      write_row(row_, op_.out, {r}, out);
    });
  }

 private:
  Add op_;
  const RowKernels& row_;
  std::int64_t d_;
  ScratchLayout local_;
  std::int64_t a_ = 0;
  std::int64_t b_ = 0;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const Add& op, const CpuKernels& kernels) {
  return std::make_unique<CpuAdd>(op, kernels.row);
}

}  // namespace conclave
