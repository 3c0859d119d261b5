#include "ops/moe_expert_ids.h"

#include "backends/cpu/moe_group.h"
#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

void store_grid(const Tensor& grid, std::int64_t rows, std::int64_t columns, std::int64_t experts) {
  store_i32(grid, {0}, rows);
  store_i32(grid, {1}, columns);
  store_i32(grid, {2}, experts);
}

class CpuMoeExpertIds final : public CpuOp {
 public:
  explicit CpuMoeExpertIds(const MoeExpertIds& op) : op_(op) {}
  void run(const CpuRun& run) const override {
    if (run.region.rank() == 0) list();
    run.region.barrier();
  }

 private:
  void list() const {
    std::int32_t* tpe = i32_row(op_.tpe, {});  // counts as the lists grow
    std::fill_n(tpe, op_.n_experts, 0);
    for_each_pair(op_.experts, op_.live, op_.n_experts, [&](std::int32_t expert, std::int32_t pair, std::int64_t) {
      i32_row(op_.ids, {expert})[tpe[expert]++] = pair;
    });
    const std::int32_t max_rows = *std::max_element(tpe, tpe + op_.n_experts);
    store_i32(op_.max_rows, {0}, max_rows);
    const std::int64_t row_blocks = std::max<std::int64_t>(1, ceil_div(max_rows, op_.nr1));
    store_grid(op_.grid_gate_up, row_blocks, ceil_div(op_.d_ff, op_.nr0), op_.n_experts);
    store_grid(op_.grid_down, row_blocks, ceil_div(op_.d_model, op_.nr0), op_.n_experts);
  }

  MoeExpertIds op_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeExpertIds& op, const CpuKernels&) {
  return std::make_unique<CpuMoeExpertIds>(op);
}

}  // namespace conclave
