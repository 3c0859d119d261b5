#include "ops/moe_routing_upload.h"

#include <cstring>

#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

void copy_row(const Tensor& from, const Tensor& to, Index leading) {
  const auto bytes = static_cast<std::size_t>(row_bytes(from));
  if (bytes > 0) std::memcpy(row_address(to, leading), row_address(from, leading), bytes);
}

void copy_padded(const Tensor& from, const Tensor& to, std::int64_t padding) {
  copy_row(from, to, {});
  std::int32_t* row = i32_row(to, {});
  std::fill(row + from.dim(0), row + to.dim(0), static_cast<std::int32_t>(padding));
}

class CpuMoeRoutingUpload final : public CpuOp {
 public:
  explicit CpuMoeRoutingUpload(const MoeRoutingUpload& op) : op_(op) {}
  void run(const CpuRun& run) const override {
    if (!op_.from_blocks.sorted_ids.defined()) {
      for_rows(run.region, op_.from.experts.dim(0), row_width(op_.from.experts), [&](std::int64_t t) {
        copy_row(op_.from.experts, op_.to.experts, {t});
        copy_row(op_.from.weights, op_.to.weights, {t});
      });
      return;
    }
    if (run.region.rank() == 0) {
      copy_padded(op_.from_blocks.sorted_ids, op_.to_blocks.sorted_ids, op_.n_pairs);
      copy_padded(op_.from_blocks.block_expert, op_.to_blocks.block_expert, -1);
      copy_padded(op_.from_blocks.n_padded, op_.to_blocks.n_padded, 0);
    }
    run.region.barrier();
  }

 private:
  MoeRoutingUpload op_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeRoutingUpload& op, const CpuKernels&) {
  return std::make_unique<CpuMoeRoutingUpload>(op);
}

}  // namespace conclave
