// moe_ffn in as few passes as its dependencies allow:
//
//   route each token and quantise its x          | per token
//   group the pairs, cut the work                | one thread
//   pack the rows of an expert together          | per 16 rows, where the kernels want that
//   gate, up, the activation; quantise hidden    | (expert, rows, columns); hidden is packed at once
//   down                                         | (expert, rows, columns)
//   combine, the residual, the next norm         | per token
//
// Each step computes what the op that it replaces computes, in the same order: the bits are those of the sequence.
#include "backends/cpu/combine.h"
#include "backends/cpu/expert_product.h"
#include "backends/cpu/moe_group.h"
#include "backends/cpu/moe_route.h"
#include "backends/cpu/row_work.h"
#include "ops/host_access.h"

namespace conclave {
namespace {

class Ffn final : public CpuOp {
 public:
  Ffn(const MoeFfn& op, const CpuKernels& kernels)
      : op_(op),
        ops_(sequence_of(op)),
        row_(kernels.row),
        router_(ops_.route, kernels.row),
        gate_up_({.x = op.x, .w = op.gate, .up = op.up, .act = op.act, .out = op.hidden},
                 rows_of(ops_.gate_up, kGrouped), kernels),
        down_({.x = op.hidden, .w = op.down, .out = op.expert_out}, rows_of(ops_.down, kGrouped), kernels),
        unusable_at_(shared_.add<std::int32_t>(n_tokens())),
        counts_at_(shared_.add<std::int32_t>(n_experts())),
        gate_up_at_(shared_.add(1, gate_up_.shared_bytes())),
        down_at_(shared_.add(1, down_.shared_bytes())),
        router_at_(local_.add(1, router_.scratch_bytes())),
        gate_up_local_at_(local_.add(1, gate_up_.local_bytes())),
        down_local_at_(local_.add(1, down_.local_bytes())),
        sum_at_(local_.add<float>(d_model())),
        row_at_(local_.add<float>(d_model())) {
    if (ops_.shared) {
      shared_expert_ = make_cpu_op(*ops_.shared, kernels);
      shared_expert_at_ = shared_.add(1, shared_expert_->shared_bytes());
      shared_expert_local_at_ = local_.add(1, shared_expert_->local_bytes());
    }
  }

  std::int64_t shared_bytes() const override { return shared_.bytes(); }
  std::int64_t local_bytes() const override { return local_.bytes(); }

  void run(const CpuRun& run) const override {
    const Region& region = run.region;
    const std::int64_t n_live = live_rows(op_.live, n_tokens());
    const CpuRun gate_up{run.region, run.shared + gate_up_at_, run.local + gate_up_local_at_};
    const CpuRun down{run.region, run.shared + down_at_, run.local + down_local_at_};

    auto* unusable = scratch_at<std::int32_t>(run.shared, unusable_at_);
    region.for_each(n_live, [&](std::int64_t t) {
      unusable[t] = router_.route(t, run.local + router_at_) ? 0 : 1;
      gate_up_.fill(gate_up, t);
    });
    if (region.rank() == 0) {
      std::int64_t rows = 0;
      for (std::int64_t t = 0; t < n_live; ++t) rows += unusable[t];
      count_unusable(op_.routing.no_finite, rows);
      group_pairs(ops_.group, scratch_at<std::int32_t>(run.shared, counts_at_));
      const std::int32_t* offsets = i32_row(op_.groups.offsets, {});
      for (std::int64_t e = 0; op_.routing.counts.defined() && e < n_experts(); ++e) {
        count_chosen(op_.routing.counts, e, offsets[e + 1] - offsets[e]);
      }
      gate_up_.plan(gate_up);
      down_.plan_as(gate_up_, gate_up, down);
    }
    region.barrier();
    gate_up_.pack(gate_up);
    const bool packed = gate_up_.multiply_and_fill(gate_up, down_, down);
    if (shared_expert_) {
      shared_expert_->run({run.region, run.shared + shared_expert_at_, run.local + shared_expert_local_at_});
    }
    if (!packed) down_.pack(down);
    down_.multiply(down);
    region.for_each(n_live, [&](std::int64_t t) {
      auto* sum = scratch_at<float>(run.local, sum_at_);
      auto* row = scratch_at<float>(run.local, row_at_);
      combine_token(from(), t, row_, sum, row);
      add_to_residual(op_.residual, t, row_, sum, row);
      if (op_.next.out.defined()) norm_residual(op_.residual, op_.next, t, row_, sum, row);
    });
  }

 private:
  static constexpr bool kGrouped = true;

  std::int64_t n_tokens() const { return op_.x.dim(0); }
  std::int64_t n_experts() const { return op_.logits.dim(1); }
  std::int64_t d_model() const { return op_.x.dim(1); }
  const CombineInput& from() const {
    return std::visit([](const auto& combine) -> const CombineInput& { return combine.from; }, ops_.combine);
  }

  MoeFfn op_;
  MoeFfnSequence ops_;
  const RowKernels& row_;
  TokenRouter router_;
  ExpertProduct gate_up_;
  ExpertProduct down_;
  std::unique_ptr<CpuOp> shared_expert_;
  ScratchLayout shared_;
  std::int64_t unusable_at_;
  std::int64_t counts_at_;
  std::int64_t gate_up_at_;
  std::int64_t down_at_;
  std::int64_t shared_expert_at_ = 0;
  ScratchLayout local_;
  std::int64_t router_at_;
  std::int64_t gate_up_local_at_;
  std::int64_t down_local_at_;
  std::int64_t shared_expert_local_at_ = 0;
  std::int64_t sum_at_;
  std::int64_t row_at_;
};

}  // namespace

std::unique_ptr<CpuOp> make_cpu_op(const MoeFfn& op, const CpuKernels& kernels) {
  return std::make_unique<Ffn>(op, kernels);
}

}  // namespace conclave
