// moe_group, moe_pairs_by_token, moe_expert_ids, moe_align_blocks: one sort, four sets of outputs.
#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/cuda_check.h"
#include "backends/cuda/cuda_op.h"
#include "backends/cuda/grouping_plan.h"
#include "base/fail.h"

namespace conclave::cuda {
namespace {

std::uint32_t* unsigned_ints(const Tensor& t) {
  return reinterpret_cast<std::uint32_t*>(view_of(t).data);
}

// The inputs: all that every op has.
template <class Op>
GroupArgs input_of(const Op& op) {
  const bool none = op.experts.dim(0) == 0 || op.experts.dim(1) == 0;  // then the other may be anything
  return {.experts = pair_table(view_of(op.experts)),
          .live = ints_of(op.live),
          .n_tokens = none ? 0 : static_cast<std::int32_t>(op.experts.dim(0)),
          .top_k = none ? 0 : static_cast<std::int32_t>(op.experts.dim(1)),
          .n_experts = static_cast<std::int32_t>(op.n_experts)};
}

class CudaGrouping final : public CudaOp {
 public:
  CudaGrouping(const GroupArgs& args, std::string_view name)
      : args_(args), what_(fmt::format("{} [{},{}] of {}", name, args.n_tokens, args.top_k, args.n_experts)) {}

  std::int64_t scratch_bytes() const override {
    return group_scratch_bytes(std::int64_t{args_.n_tokens} * args_.top_k, args_.n_experts);
  }
  void enqueue(const CudaRun& run) const override {
    GroupArgs args = args_;
    args.scratch = run.scratch;
    check(launch_group(args, run.stream), what_);
  }

 private:
  GroupArgs args_;
  std::string what_;
};

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const MoeGroup& op, const Target&) {
  GroupArgs args = input_of(op);
  args.offsets = ints_of(op.out.offsets);
  args.row_pair = ints_of(op.out.row_pair);
  args.pair_row = pair_table(view_of(op.out.pair_row));
  return std::make_unique<CudaGrouping>(args, MoeGroup::kName);
}

std::unique_ptr<CudaOp> make_cuda_op(const MoePairsByToken& op, const Target&) {
  GroupArgs args = input_of(op);
  args.offsets = ints_of(op.offsets);
  args.row_pair = ints_of(op.row_token);
  args.row_tokens = true;
  args.pair_row = pair_table(view_of(op.packed_row));
  return std::make_unique<CudaGrouping>(args, MoePairsByToken::kName);
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeExpertIds& op, const Target&) {
  GroupArgs args = input_of(op);
  args.ids = view_of(op.ids).data;
  args.ids_stride = op.ids.stride(0);
  args.tpe = ints_of(op.tpe);
  args.max_rows = ints_of(op.max_rows);
  args.grid_gate_up = unsigned_ints(op.grid_gate_up);
  args.grid_down = unsigned_ints(op.grid_down);
  args.nr1 = op.nr1;
  args.gate_up_columns = static_cast<std::uint32_t>(ceil_div(op.d_ff, op.nr0));
  args.down_columns = static_cast<std::uint32_t>(ceil_div(op.d_model, op.nr0));
  return std::make_unique<CudaGrouping>(args, MoeExpertIds::kName);
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeAlignBlocks& op, const Target&) {
  GroupArgs args = input_of(op);
  args.sorted_ids = ints_of(op.out.sorted_ids);
  args.block_expert = ints_of(op.out.block_expert);
  args.n_padded = ints_of(op.out.n_padded);
  args.capacity = op.out.sorted_ids.dim(0);
  args.n_blocks = op.out.block_expert.dim(0);
  args.block_size = static_cast<std::int32_t>(op.block_size);
  args.sorted_pairs = op.ids == RowIds::pair;
  return std::make_unique<CudaGrouping>(args, MoeAlignBlocks::kName);
}

}  // namespace conclave::cuda
