#include <algorithm>

#include "backends/cpu/expert_product.h"
#include "ops/host_access.h"

namespace conclave {
namespace {

class SharedExpert final : public CpuOp {
 public:
  SharedExpert(const MoeSharedExpert& op, const CpuKernels& kernels)
      : op_(op),
        kernels_(kernels),
        gate_up_({.x = op.x, .w = as_stack(op.gate), .up = as_stack(op.up), .act = op.act, .out = op.hidden},
                 every_row(op.x.dim(0), op.live), kernels),
        down_({.x = op.hidden, .w = as_stack(op.down), .out = op.out}, every_row(op.x.dim(0), op.live), kernels),
        shares_at_(shared_.add<float>(op.gate_inp.defined() ? op.x.dim(0) : 0)),
        products_at_(shared_.add(1, std::max(gate_up_.shared_bytes(), down_.shared_bytes()))),
        x_at_(local_.add<float>(op.x.dim(1))),
        gate_at_(local_.add<float>(op.x.dim(1))),
        product_local_at_(local_.add(1, std::max(gate_up_.local_bytes(), down_.local_bytes()))) {}

  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  std::int64_t local_bytes() const override { return local_.bytes(); }

  void run(const CpuRun& run) const override {
    float* shares = nullptr;
    if (op_.gate_inp.defined()) {
      shares = scratch_at<float>(run.shared, shares_at_);
      run.region.for_each(live_rows(op_.live, op_.x.dim(0)), [&](std::int64_t t) { shares[t] = share(run, t); });
    }
    const CpuRun inner{run.region, run.shared + products_at_, run.local + product_local_at_};
    gate_up_.run(inner);
    down_.run(inner, shares);
  }

 private:
  float share(const CpuRun& run, std::int64_t t) const {
    auto* x = scratch_at<float>(run.local, x_at_);
    auto* gate = scratch_at<float>(run.local, gate_at_);
    const std::int64_t d_model = op_.x.dim(1);
    kernels_.row.load(op_.x.dtype, row_address(op_.x, {t}), x, d_model);
    kernels_.row.load(op_.gate_inp.dtype, row_address(op_.gate_inp, {}), gate, d_model);
    return static_cast<float>(sigmoid(static_cast<double>(kernels_.row.dot(x, gate, d_model))));
  }

  MoeSharedExpert op_;
  const CpuKernels& kernels_;
  ExpertProduct gate_up_;
  ExpertProduct down_;
  ScratchLayout shared_;
  std::int64_t shares_at_;
  std::int64_t products_at_;
  ScratchLayout local_;
  std::int64_t x_at_;
  std::int64_t gate_at_;
  std::int64_t product_local_at_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeSharedExpert& op, const CpuKernels& kernels) {
  return std::make_unique<SharedExpert>(op, kernels);
}

}  // namespace conclave
