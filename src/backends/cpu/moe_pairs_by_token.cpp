#include "ops/moe_pairs_by_token.h"

#include "backends/cpu/moe_group.h"
#include "backends/cpu/row_work.h"

namespace conclave {
namespace {

class CpuMoePairsByToken final : public CpuOp {
 public:
  explicit CpuMoePairsByToken(const MoePairsByToken& op)
      // Grouped as moe_group does, into its row_pair: here the place of the tokens.
      : group_{.experts = op.experts,
               .live = op.live,
               .n_experts = op.n_experts,
               .out = {.offsets = op.offsets, .row_pair = op.row_token, .pair_row = op.packed_row}} {
    shared_.add<std::int32_t>(op.n_experts);
  }
  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  void run(const CpuRun& run) const override {
    if (run.region.rank() == 0) {
      group_pairs(group_, scratch_at<std::int32_t>(run.shared, 0));
      const auto top_k = static_cast<std::int32_t>(group_.experts.dim(1));
      const std::int32_t n_rows = load_i32(group_.out.offsets, {group_.n_experts});
      std::int32_t* row_token = i32_row(group_.out.row_pair, {});
      for (std::int32_t r = 0; r < n_rows; ++r) row_token[r] /= top_k;
    }
    run.region.barrier();
  }

 private:
  MoeGroup group_;
  ScratchLayout shared_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoePairsByToken& op, const CpuKernels&) {
  return std::make_unique<CpuMoePairsByToken>(op);
}

}  // namespace conclave
