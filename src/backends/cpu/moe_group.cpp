// moe_group: by rank 0. Two passes over the ids: a batch large enough to be worth sharing out spends seconds in its
// products.
#include "backends/cpu/moe_group.h"

#include "backends/cpu/row_work.h"

namespace conclave {

void count_pairs(const Tensor& experts, const Tensor& live, std::int64_t n_experts, std::int32_t* counts) {
  std::fill_n(counts, n_experts, 0);
  for_each_pair(experts, live, n_experts, [&](std::int32_t expert, std::int32_t, std::int64_t) { ++counts[expert]; });
}

void group_pairs(const MoeGroup& op, std::int32_t* counts) {
  count_pairs(op.experts, op.live, op.n_experts, counts);
  std::int32_t* next = counts;  // from here on: the packed row of each expert's next pair
  std::int32_t row = 0;
  std::int32_t* offsets = i32_row(op.out.offsets, {});
  for (std::int64_t e = 0; e < op.n_experts; ++e) {
    const std::int32_t count = counts[e];
    offsets[e] = row;
    next[e] = row;
    row += count;
  }
  offsets[op.n_experts] = row;

  const std::int64_t top_k = op.experts.dim(1);
  for (std::int64_t t = 0; top_k > 0 && t < op.experts.dim(0); ++t) {
    std::fill_n(i32_row(op.out.pair_row, {t}), top_k, -1);
  }
  std::int32_t* row_pair = i32_row(op.out.row_pair, {});
  for_each_pair(op.experts, op.live, op.n_experts, [&](std::int32_t expert, std::int32_t pair, std::int64_t t) {
    const std::int32_t at = next[expert]++;
    row_pair[at] = pair;
    i32_row(op.out.pair_row, {t})[pair - t * top_k] = at;
  });
  std::fill(row_pair + row, row_pair + op.out.row_pair.dim(0), -1);
}

namespace {

class CpuMoeGroup final : public CpuOp {
 public:
  explicit CpuMoeGroup(const MoeGroup& op) : op_(op) { shared_.add<std::int32_t>(op.n_experts); }
  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  void run(const CpuRun& run) const override {
    if (run.region.rank() == 0) group_pairs(op_, scratch_at<std::int32_t>(run.shared, 0));
    run.region.barrier();
  }

 private:
  MoeGroup op_;
  ScratchLayout shared_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeGroup& op, const CpuKernels&) {
  return std::make_unique<CpuMoeGroup>(op);
}

}  // namespace conclave
