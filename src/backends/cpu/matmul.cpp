#include "backends/cpu/expert_product.h"

namespace conclave {
namespace {

// One op that is one product.
class ProductOp final : public CpuOp {
 public:
  ProductOp(const ProductSpec& spec, std::unique_ptr<RowLists> lists, const CpuKernels& kernels)
      : product_(spec, std::move(lists), kernels) {}
  std::int64_t shared_bytes() const override { return product_.shared_bytes(); }
  std::int64_t local_bytes() const override { return product_.local_bytes(); }
  void run(const CpuRun& run) const override { product_.run(run); }

 private:
  ExpertProduct product_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const Matmul& op, const CpuKernels& kernels) {
  return std::make_unique<ProductOp>(ProductSpec{.x = op.x, .w = as_stack(op.w), .bias = op.bias, .out = op.out},
                                     every_row(op.x.dim(0), op.live), kernels);
}

std::unique_ptr<CpuOp> make_cpu_op(const MoeMatmul& op, const CpuKernels& kernels) {
  return std::make_unique<ProductOp>(ProductSpec{.x = op.x, .w = op.w, .out = op.out}, rows_of(op), kernels);
}

std::unique_ptr<CpuOp> make_cpu_op(const MoeGateUp& op, const CpuKernels& kernels) {
  return std::make_unique<ProductOp>(ProductSpec{.x = op.x, .w = op.gate, .up = op.up, .act = op.act, .out = op.out},
                                     rows_of(op), kernels);
}

std::unique_ptr<CpuOp> make_cpu_op(const MoeDown& op, const CpuKernels& kernels) {
  return std::make_unique<ProductOp>(ProductSpec{.x = op.x, .w = op.down, .out = op.out}, rows_of(op), kernels);
}

}  // namespace conclave
