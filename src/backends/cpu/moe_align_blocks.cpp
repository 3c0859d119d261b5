#include "ops/moe_align_blocks.h"

#include "backends/cpu/moe_group.h"
#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

class CpuMoeAlignBlocks final : public CpuOp {
 public:
  explicit CpuMoeAlignBlocks(const MoeAlignBlocks& op) : op_(op) { shared_.add<std::int32_t>(op.n_experts); }
  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  void run(const CpuRun& run) const override {
    if (run.region.rank() == 0) align(scratch_at<std::int32_t>(run.shared, 0));
    run.region.barrier();
  }

 private:
  void align(std::int32_t* counts) const {
    count_pairs(op_.experts, op_.live, op_.n_experts, counts);
    std::int32_t* ids = i32_row(op_.out.sorted_ids, {});
    std::int32_t* block_expert = i32_row(op_.out.block_expert, {});
    const auto n_pairs = static_cast<std::int32_t>(op_.experts.dim(0) * op_.experts.dim(1));
    std::fill_n(ids, op_.out.sorted_ids.dim(0), n_pairs);
    std::fill_n(block_expert, op_.out.block_expert.dim(0), -1);

    std::int32_t* next = counts;  // from here on: where each expert's next pair goes
    std::int64_t padded = 0;
    std::int32_t packed_row = 0;
    for (std::int64_t e = 0; e < op_.n_experts; ++e) {
      const std::int32_t count = counts[e];
      next[e] = static_cast<std::int32_t>(padded);
      for (std::int32_t i = 0; op_.ids == RowIds::packed && i < count; ++i) ids[padded + i] = packed_row++;
      for (std::int64_t done = 0; done < count; done += op_.block_size) {
        block_expert[padded / op_.block_size] = static_cast<std::int32_t>(e);
        padded += op_.block_size;
      }
    }
    store_i32(op_.out.n_padded, {0}, padded);
    if (op_.ids == RowIds::packed) return;
    for_each_pair(op_.experts, op_.live, op_.n_experts,
                  [&](std::int32_t expert, std::int32_t pair, std::int64_t) { ids[next[expert]++] = pair; });
  }

  MoeAlignBlocks op_;
  ScratchLayout shared_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeAlignBlocks& op, const CpuKernels&) {
  return std::make_unique<CpuMoeAlignBlocks>(op);
}

}  // namespace conclave
