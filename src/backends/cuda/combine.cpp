#include "backends/cuda/cuda_buffer.h"
#include "backends/cuda/launch_op.h"
#include "backends/cuda/moe_ffn.h"
#include "ops/moe_combine_residual_norm.h"

namespace conclave::cuda {
namespace {

CombineArgs args_of(const CombineInput& from, CombineInto into, const Tensor& out) {
  const bool packed = from.rows.rank == 2;
  return {.rows = view_of(from.rows),
          .weights = view_of(from.weights),
          .index = view_of(packed ? from.pair_row : from.experts),
          .index_end = packed ? from.rows.dim(0) : from.n_experts,
          .shared = view_of(from.shared),
          .live = ints_of(from.live),
          .into = into,
          .out = view_of(out)};
}

std::unique_ptr<CudaOp> combine(const CombineArgs& args, std::string_view name, const CombineInput& from) {
  return launch_op(launch_combine, args, std::string(name) + " " + shape_text(from.rows.shape()));
}

}  // namespace

std::unique_ptr<CudaOp> make_cuda_op(const MoeCombine& op, const Target&) {
  return combine(args_of(op.from, CombineInto::out, op.out), op.kName, op.from);
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeCombineResidual& op, const Target&) {
  return combine(args_of(op.from, CombineInto::residual, op.residual), op.kName, op.from);
}

std::unique_ptr<CudaOp> make_cuda_op(const MoeCombineResidualNorm& op, const Target& target) {
  return make_combine_norm(op, target, {}, false);
}

std::unique_ptr<CudaOp> make_combine_norm(const MoeCombineResidualNorm& op, const Target& target, const BankOut& bank,
                                          bool early) {
  CombineArgs args = args_of(op.from, CombineInto::residual_norm, op.residual);
  args.norm_weight = view_of(op.next.weight);
  args.normed = view_of(op.next.out);
  args.eps = op.next.eps;
  args.bank = bank;
  args.early = early;
  args.clusters = target.capability >= 90;
  return combine(args, op.kName, op.from);
}

}  // namespace conclave::cuda
