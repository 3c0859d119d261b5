#include <cstring>

#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

class CpuEmbed final : public CpuOp {
 public:
  CpuEmbed(const Embed& op, const RowKernels& row) : op_(op), row_(row), d_(row_width(op.out)) {
    local_.add<float>(d_);
  }
  std::int64_t local_bytes() const override { return local_.bytes(); }
  bool alone() const override { return rows_alone(op_.ids.dim(0), d_); }
  void run(const CpuRun& run) const override {
    float* scratch = scratch_at<float>(run.local, 0);
    for_rows(run.region, live_rows(op_.live, op_.ids.dim(0)), d_, [&](std::int64_t t) {
      const std::int32_t id = load_i32(op_.ids, {t});
      std::byte* out = row_address(op_.out, {t});
      if (id < 0 || id >= op_.table.dim(0)) {
        std::memset(out, 0, static_cast<std::size_t>(row_bytes(op_.out)));  // zeros in every float type
        return;
      }
      const float* x = scratch;
      if (is_float(op_.table.dtype)) {
        x = read_row(row_, op_.table, {id}, scratch);
      } else {
        decode(op_.table.dtype, {row_address(op_.table, {id}), static_cast<std::size_t>(row_bytes(op_.table))},
               {scratch, static_cast<std::size_t>(d_)});
      }
      row_.store(op_.out.dtype, x, out, d_);
    });
  }

 private:
  Embed op_;
  const RowKernels& row_;
  std::int64_t d_;
  ScratchLayout local_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const Embed& op, const CpuKernels& kernels) {
  return std::make_unique<CpuEmbed>(op, kernels.row);
}

}  // namespace conclave
